from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from twoloop.errors import TrainError
from twoloop.models.fast import speed_up
from twoloop.models.hub import load_model
from twoloop.models.sampler import TorchSampler
from twoloop.models.types import SamplingParams
from twoloop.records import Datum, HintSpan
from twoloop.train import losses
from twoloop.train.rl import sync
from twoloop.train.trainer import LocalTrainer, trim
from twoloop.train.types import LossConfig
from twoloop.train.weights import FullWeights, LoraWeights

NEXT = LossConfig(name="next_token")
HINT = LossConfig(hint_weight=1.0, hint_top_k=16)


def tokens(length: int, seed: int) -> tuple[int, ...]:
    return tuple(torch.randint(3, 250, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def row(length: int = 20, learned: int = 8, seed: int = 0, start: tuple[int, ...] = (), **more: Any) -> Datum:
    text = (start + tokens(length, seed))[:length] if start else tokens(length, seed)
    return Datum(text, (0.0,) * (length - learned) + (1.0,) * learned, **more)


@pytest.fixture
def trainer(tiny: Path) -> LocalTrainer:
    return LocalTrainer(LoraWeights(load_model(tiny), rank=4, seed=1))


def gradient(trainer: LocalTrainer, data: list[Datum], loss: LossConfig) -> list[torch.Tensor]:
    trainer.forward_backward(data, loss)
    found = [p.grad.clone() for p in trainer.weights.parameters() if p.grad is not None]
    for parameter in trainer.weights.parameters():
        parameter.grad = None
    return found


def test_shared_starts_and_batching_change_nothing(tiny: Path) -> None:
    start = tokens(30, 9)
    data = [row(40, 10, seed, start) for seed in range(5)] + [row(25, 5, 7)]
    together = LocalTrainer(LoraWeights(load_model(tiny), 4, seed=1), max_packed=4096)
    apart = LocalTrainer(LoraWeights(load_model(tiny), 4, seed=1), max_packed=1)
    for a, b in zip(gradient(together, data, NEXT), gradient(apart, data, NEXT), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_the_chunked_head_gives_the_loss_of_the_whole(trainer: LocalTrainer, reference: Any) -> None:
    data = [row(400, 350)]
    stats = trainer.forward_backward(data, NEXT)
    ids = torch.tensor([data[0].tokens])
    with torch.no_grad():
        logp = reference(ids).logits[0].log_softmax(-1)
    expected = -sum(float(logp[i - 1, data[0].tokens[i]]) for i in range(50, 400))
    assert stats.loss == pytest.approx(expected, rel=1e-4)
    assert stats.tokens == 350


def hinted(seed: int = 0) -> Datum:
    span = HintSpan(at=10, start=12, end=20, hint_tokens=tokens(7, 99))
    return Datum(tokens(20, seed), (0.0,) * 20, hints=(span,))


def test_the_teacher_reads_the_hint_before_the_turn_and_scores_the_same_tokens(
    trainer: LocalTrainer, reference: Any
) -> None:
    datum = hinted()
    stats = trainer.forward_backward([datum], HINT)
    hint = datum.hints[0]
    plain, spliced = list(datum.tokens), [*datum.tokens[:10], *hint.hint_tokens, *datum.tokens[10:]]
    with torch.no_grad():
        student = reference(torch.tensor([plain])).logits[0, 11:19].log_softmax(-1)
        teacher = reference(torch.tensor([spliced])).logits[0, 18:26].log_softmax(-1)
    expected = losses.hint_kl(student, teacher, 16, "forward")
    assert stats.hint_kl == pytest.approx(float(expected.mean()), abs=1e-4)
    assert stats.loss == pytest.approx(float(expected.mean()), abs=1e-4)  # the mean over the turn, weight 1
    target = torch.tensor(plain[12:20])[:, None]
    gain = float((teacher.gather(1, target) - student.gather(1, target)).mean())
    assert stats.hint_gain == pytest.approx(gain, abs=1e-4)


def test_learning_a_hint_makes_the_student_say_without_it_what_the_teacher_says_with_it(tiny: Path) -> None:
    trainer = LocalTrainer(LoraWeights(load_model(tiny), 8, seed=1))
    first = trainer.forward_backward([hinted()], HINT).hint_kl
    for _ in range(25):
        trainer.optim_step(3e-3)
        last = trainer.forward_backward([hinted()], HINT).hint_kl
    assert last < 0.3 * first


def test_only_the_hinted_turn_is_trained(trainer: LocalTrainer) -> None:
    assert trim(hinted()) is not None
    before = gradient(trainer, [hinted()], HINT)
    longer = hinted()
    longer = Datum(longer.tokens + tokens(9, 5), longer.mask + (0.0,) * 9, hints=longer.hints)
    for a, b in zip(before, gradient(trainer, [longer], HINT), strict=True):
        torch.testing.assert_close(a, b)


def test_sampler_and_trainer_agree_after_steps(tiny: Path) -> None:
    trainer = LocalTrainer(LoraWeights(load_model(tiny), 4, seed=1))
    sampler = TorchSampler(speed_up(load_model(tiny)), batch=8)
    for step in range(3):
        sync(trainer, sampler)
        assert sampler.policy_version == trainer.policy_version == step
        prompt = list(tokens(15, step))
        (group,) = sampler.sample([prompt], 4, SamplingParams(max_tokens=8, seed=step))
        data = [
            Datum(
                (*prompt, *s.tokens),
                (0.0,) * 15 + (1.0,) * len(s.tokens),
                (0.0,) * 15 + s.logprobs,
                (0.0,) * 15 + (float(i) - 1.5,) * len(s.tokens),
            )
            for i, s in enumerate(group)
        ]
        stats = trainer.forward_backward(data, LossConfig())
        assert stats.sampler_gap < 1e-4
        assert stats.ratio_mean == pytest.approx(1.0, abs=1e-3)
        trainer.optim_step(1e-2)


def test_a_saved_state_goes_on_as_if_nothing_had_happened(tiny: Path, tmp_path: Path) -> None:
    def fresh() -> LocalTrainer:
        return LocalTrainer(LoraWeights(load_model(tiny), 4, seed=1))

    def step(trainer: LocalTrainer, seed: int) -> None:
        trainer.forward_backward([row(seed=seed)], NEXT)
        trainer.optim_step(1e-2)

    straight = fresh()
    step(straight, 0)
    straight.save_state(tmp_path / "state")
    step(straight, 1)
    resumed = fresh()
    resumed.load_state(tmp_path / "state")
    assert resumed.policy_version == 1
    step(resumed, 1)
    for name, tensor in straight.weights.state().items():
        assert torch.equal(tensor, resumed.weights.state()[name])


def test_an_ema_teacher_follows_and_a_frozen_one_stays(tiny: Path) -> None:
    for kind, moves in (("frozen", False), ("ema", True)):
        trainer = LocalTrainer(LoraWeights(load_model(tiny), 4, seed=1), teacher=kind)  # type: ignore[arg-type]
        before = trainer.weights.teacher_state()
        trainer.forward_backward([row()], NEXT)
        trainer.optim_step(1e-2)
        after = trainer.weights.teacher_state()
        assert any(not torch.equal(before[n], after[n]) for n in before) is moves


def test_nothing_to_train_is_an_error(trainer: LocalTrainer) -> None:
    with pytest.raises(TrainError, match="nothing was trained"):
        trainer.forward_backward([Datum(tokens(5, 0), (0.0,) * 5)], NEXT)
    with pytest.raises(TrainError, match="without a forward_backward"):
        trainer.optim_step(1e-3)


def test_weights_that_do_not_change_are_an_error(trainer: LocalTrainer) -> None:
    trainer.forward_backward([row()], NEXT)
    with pytest.raises(TrainError, match="did not change"):
        trainer.optim_step(0.0)


def test_a_gradient_that_is_not_finite_is_an_error_and_touches_nothing(trainer: LocalTrainer) -> None:
    before = trainer.weights.state()
    trainer.forward_backward([row()], LossConfig(name="next_token", divisor=1e-45))
    with pytest.raises(TrainError, match="not finite"):
        trainer.optim_step(1e-3)
    assert all(torch.equal(t, trainer.weights.state()[n]) for n, t in before.items())


def test_a_published_checkpoint_is_the_policy(tiny: Path, tmp_path: Path) -> None:
    from twoloop.models.checkpoints import load_checkpoint

    trainer = LocalTrainer(LoraWeights(load_model(tiny), 4, seed=1))
    trainer.forward_backward([row()], NEXT)
    trainer.optim_step(1e-2)
    checkpoint = trainer.publish("c1", tmp_path, base=tiny, parent="seed", recipe="r", data="d")
    merged = load_model(tiny)
    trainer.weights.merge_into(merged)
    loaded = load_checkpoint(checkpoint)
    for a, b in zip(merged.parameters(), loaded.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    assert (checkpoint.parent, checkpoint.policy_version) == ("seed", 1)


def test_full_weights_train_and_publish_too(tiny: Path, tmp_path: Path) -> None:
    trainer = LocalTrainer(FullWeights(load_model(tiny)))
    trainer.forward_backward([row()], NEXT)
    trainer.optim_step(1e-3)
    checkpoint = trainer.publish("c1", tmp_path, base=tiny, parent=None, recipe="", data="")
    assert Path(checkpoint.base) == tmp_path / "c1"
    again = load_model(Path(checkpoint.base))
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, trainer.weights.state()[name])
