"""One measurement at a time: made once, recorded in the work folder, and timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ldp_slicing.lab.advise.budget import Costs, attack_kind, learner_kind, scoring_kind
from ldp_slicing.lab.advise.grid import Setting, ViewKey, size_name
from ldp_slicing.lab.advise.learning import Bench, learn
from ldp_slicing.lab.advise.linking import (
    Judge,
    embed_attacked,
    link,
    link_unprotected,
    load_judge,
    train_judge,
    train_student,
)
from ldp_slicing.lab.advise.networks import FEW, Stoppable, clock
from ldp_slicing.lab.advise.reconstruction import (
    ViewReconstructor,
    attack_images,
    attacked_of,
    score,
    train_reconstructor,
)
from ldp_slicing.lab.advise.splits import LinkageTest, Parts, linkage_test, split
from ldp_slicing.lab.advise.work import Work
from ldp_slicing.lab.bits import repeat_pixels
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate

ALMOST_NO_NOISE = 200.0  # eps of the control: high bits are almost never flipped
CONTROL = "unprotected"
TIMED = {"cuda": None, "cpu": 16}  # images that are scored to time it; None: all


@dataclass
class Measurer:
    """Measures settings on a bench, and keeps records and costs.

    samples: uint8 [K, C, H, W], images for the report. recogniser: a file of weights for the judge of linkage.
    """

    bench: Bench
    work: Work
    costs: Costs
    samples: Tensor
    recogniser: Path | None = None
    judges: dict[int, Judge | None] = field(default_factory=dict)
    loaded: Judge | None = None  # the recogniser: one for all seeds, because embedding all images takes long

    @property
    def whole(self) -> ViewKey:
        """The view of the control: everything is released, in full size."""
        return self.bench.sources.shape, None

    @property
    def control_plan(self) -> Plan:
        return Plan.grey(ALMOST_NO_NOISE) if self.bench.sources.is_grey else Plan.paper(ALMOST_NO_NOISE)

    def parts(self, seed: int) -> Parts:
        return split(self.bench.sources, seed, self.bench.effort.tested)

    def test(self, seed: int) -> LinkageTest | None:
        groups = self.bench.sources.groups
        if groups is None:
            return None
        held_out = self.parts(seed).test
        return linkage_test(self.bench.sources.labels[held_out], groups[held_out], seed)

    def learner(self, setting: Setting | None, seed: int, steps: int, *, keep: bool = True) -> dict[str, Any]:
        """Measure the utility of a setting, or of unprotected images."""
        name = f"learner | {setting.name if setting else CONTROL} | seed {seed} | {steps} steps"
        if keep and (done := self.work.get(name)):
            return done
        began = clock(self.bench.device)
        found = learn(self.bench, setting, self.parts(seed), steps, seed)
        if setting is not None:
            taken = clock(self.bench.device) - began
            self.costs.note(learner_kind(setting), taken, found["training_seconds"], steps)
        return self.work.put(name, found) if keep else found

    def attack(
        self, view: ViewKey, settings: Sequence[Setting], seed: int, steps: int, *, control: bool, keep: bool = True
    ) -> dict[str, Any]:
        """Attack all settings of a view with two networks that they share, for reconstruction and for linkage.

        control: also attack images with almost no noise.
        """
        name = attack_name(view, settings, seed, steps)
        if keep and (done := self.work.get(name)):
            return done
        bench, parts, test, began = self.bench, self.parts(seed), self.test(seed), clock(self.bench.device)
        judge = self.judges.get(seed) if test is not None else None
        plans = [one.plan for one in settings] + ([self.control_plan] if control or not settings else [])
        reconstructor = train_reconstructor(bench, view, plans, parts, steps, seed)
        student = train_student(bench, judge, view, plans, parts, steps, seed) if judge else None
        trained = clock(bench.device)
        found: dict[str, Any] = {"settings": {}, "steps": steps}
        which = attacked_of(parts, test, bench.effort.attacked)
        attacked_in_all = len(which)
        if not keep:  # timing: all images would take too long on a CPU
            which = which[: TIMED[bench.device.type]]
        with Stoppable(bench.stop):
            for one in settings:
                attacked = attack_images(bench, reconstructor, one.plan, which, seed)
                mine: dict[str, Any] = {"reconstruction": score(bench, attacked)}
                if judge and student and test:
                    seen = embed_attacked(bench, judge, student, one.plan, attacked)
                    if keep:
                        mine["linkage"] = link(bench, judge, seen, parts, test)
                found["settings"][one.name] = mine
                if keep:
                    self._draw_samples(reconstructor, one)
            if control or not settings:
                attacked = attack_images(bench, reconstructor, self.control_plan, which, seed)
                found["control"] = score(bench, attacked)
                if judge and student and test:
                    seen = embed_attacked(bench, judge, student, self.control_plan, attacked)
                    if keep:
                        found["control"] |= link(bench, judge, seen, parts, test)
        training = reconstructor.seconds + (student.seconds if student else 0.0)
        self.costs.note(attack_kind(view), trained - began, training, steps)
        for one in settings[:1]:
            scoring = (clock(bench.device) - trained) / len(plans) * attacked_in_all / len(which)
            self.costs.note(scoring_kind(one), scoring, 0.0, steps)
        return self.work.put(name, found) if keep else found

    def judge(self, seed: int, steps: int) -> None:
        """Prepare the judge of linkage for a seed, and measure it on unprotected images."""
        test = self.test(seed)
        if test is None or seed in self.judges:
            return
        judge = self.make_judge(seed, steps)
        self.judges[seed] = judge
        if judge is not None and self.work.get(f"judge | seed {seed}") is None:
            with Stoppable(self.bench.stop):
                found = link_unprotected(self.bench, judge, self.parts(seed), test)
            self.work.put(f"judge | seed {seed}", found | {"steps": steps if self.recogniser is None else 0})

    def make_judge(self, seed: int, steps: int) -> Judge | None:
        if self.recogniser is not None:
            if self.loaded is None:
                self.loaded = load_judge(self.recogniser, self.bench.device)
            return self.loaded
        return train_judge(self.bench, self.parts(seed), steps, seed)

    def time_everything(self, settings: Sequence[Setting], *, learns: bool, until: float) -> None:
        """Time a few steps of every kind of measurement, the smallest size first.

        The sizes that are left when the time is ``until`` get costs that follow from those of the size before.
        """
        few, before = FEW[self.bench.device.type], None
        if self.test(0) is not None:
            for steps in few:
                self.judges[0] = judge = self.make_judge(0, steps)
                self.costs.note("judge", judge.seconds if judge else 0.0, judge.seconds if judge else 0.0, steps)
        for size in sorted({one.size for one in settings}):
            mine = [one for one in settings if one.size == size]
            families = list({one.family: one for one in mine}.values()) if learns else []
            families.sort(key=lambda one: one.family != "thick")  # its decoder is the fastest to fit, to warm up
            if before is not None and time.monotonic() > until:
                self.costs.known |= self.costs.of_size(before, size)
                continue
            for steps in few:
                self.attack(mine[0].view, mine[:1], 0, steps, control=False, keep=False)
                for one in families if steps == few[-1] else families[:1]:
                    self.bench.priors.clear()  # fitting a decoder is a part of the cost
                    self.learner(one, 0, steps, keep=False)
            before = size
        self.judges.clear()

    def _draw_samples(self, reconstructor: ViewReconstructor, setting: Setting) -> None:
        """Save a release of each sample, in its own size, and what the network makes of it."""
        generator = torch.Generator(self.bench.device).manual_seed(4000)
        shape = self.samples.shape[2:]
        shown = simulate(
            self.samples, setting.plan, generator.manual_seed(4000), prune=setting.prune, size=setting.size
        )
        words = reconstructor.release(self.samples, setting.plan, generator.manual_seed(4000))
        reconstructed = reconstructor.reconstruct(words, setting.plan, shape).round().to(torch.uint8)
        save_tiles(
            self.work.sample(setting.name), torch.stack((repeat_pixels(shown, shape), reconstructed), 1).flatten(0, 1)
        )


def attack_name(view: ViewKey, settings: Sequence[Setting], seed: int, steps: int) -> str:
    """The name of the record of an attack."""
    names = ", ".join(one.name for one in settings)
    return f"attack | {size_name(view[0])} {view[1] or 'none'} | {names} | seed {seed} | {steps} steps"


def save_tiles(path: Path, tiles: Tensor) -> None:
    """Save uint8 [K, C, H, W] side by side as one image."""
    row = np.concatenate(list(tiles.permute(0, 2, 3, 1).cpu().numpy()), axis=1)
    Image.fromarray(row[..., 0] if row.shape[2] == 1 else row).save(path, format="PNG")
