"""One measurement at a time: made once, recorded in the work folder, and timed."""

from __future__ import annotations

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
from ldp_slicing.lab.advise.linking import Judge, link, link_unprotected, load_judge, train_judge, train_student
from ldp_slicing.lab.advise.networks import FEW, clock
from ldp_slicing.lab.advise.rebuilding import ViewRebuilder, attack_images, score, some_of, train_rebuilder
from ldp_slicing.lab.advise.splits import LinkageTest, Parts, linkage_test, split
from ldp_slicing.lab.advise.work import Work
from ldp_slicing.lab.bits import repeat_pixels
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate

ALMOST_NO_NOISE = 200.0  # eps of the control: bits are flipped so rarely that images are as good as unprotected
CONTROL = "unprotected"


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
        """Attack all settings of a view with one network each for reconstruction and linkage.

        control: also attack images with almost no noise.
        """
        names = ", ".join(one.name for one in settings)
        name = f"attack | {size_name(view[0])} {view[1] or 'none'} | {names} | seed {seed} | {steps} steps"
        if keep and (done := self.work.get(name)):
            return done
        bench, parts, test, began = self.bench, self.parts(seed), self.test(seed), clock(self.bench.device)
        judge = self.judges.get(seed) if test is not None else None
        plans = [one.plan for one in settings] + ([self.control_plan] if control or not settings else [])
        rebuilder = train_rebuilder(bench, view, plans, parts, steps, seed)
        student = train_student(bench, judge, view, plans, parts, steps, seed) if judge else None
        found: dict[str, Any] = {"settings": {}, "steps": steps}
        which = some_of(parts.test, bench.effort.attacked) if test is None else parts.test[test.released]
        for one in settings:
            attacked = attack_images(bench, rebuilder, one.plan, which, seed)
            mine: dict[str, Any] = {"reconstruction": score(bench, attacked)}
            if judge and student and test:
                mine["linkage"] = link(bench, judge, student, one.plan, attacked, parts, test)
            found["settings"][one.name] = mine
            if keep:
                self._draw_samples(rebuilder, one)
        if control or not settings:
            found["control"] = score(bench, attack_images(bench, rebuilder, self.control_plan, which, seed))
        training = rebuilder.seconds + (student.seconds if student else 0.0)
        self.costs.note(attack_kind(view), training, training, steps)
        for one in settings[:1]:
            self.costs.note(scoring_kind(one), (clock(bench.device) - began - training) / len(plans), 0.0, steps)
        return self.work.put(name, found) if keep else found

    def judge(self, seed: int, steps: int) -> None:
        """Prepare the judge of linkage for a seed, and measure it on unprotected images."""
        test = self.test(seed)
        if test is None or seed in self.judges:
            return
        judge = self.make_judge(seed, steps)
        self.judges[seed] = judge
        if judge is not None and self.work.get(f"judge | seed {seed}") is None:
            found = link_unprotected(self.bench, judge, self.parts(seed), test)
            self.work.put(f"judge | seed {seed}", found | {"steps": steps if self.recogniser is None else 0})

    def make_judge(self, seed: int, steps: int) -> Judge | None:
        if self.recogniser is not None:
            return load_judge(self.recogniser, self.bench.device)
        return train_judge(self.bench, self.parts(seed), steps, seed)

    def time_everything(self, settings: Sequence[Setting], *, learns: bool) -> float:
        """Time a few steps of every kind of measurement, and return the seconds of one step of the judge."""
        step, few = 0.0, FEW[self.bench.device.type]
        if self.test(0) is not None:
            for steps in few:
                judge = self.make_judge(0, steps)
                self.judges[0], step = judge, judge.seconds / steps if judge else 0.0
        for size in dict.fromkeys(one.size for one in settings):
            view = next(one.view for one in settings if one.size == size)
            mine = [one for one in settings if one.view == view]
            families = {one.family: one for one in mine} if learns else {}
            for steps in few:
                self.attack(view, mine[:1], 0, steps, control=False, keep=False)
                for one in families.values():
                    self.learner(one, 0, steps, keep=False)
        self.judges.clear()
        return step

    def _draw_samples(self, rebuilder: ViewRebuilder, setting: Setting) -> None:
        """Save a release of each sample, in its own size, and what the network makes of it."""
        generator = torch.Generator(self.bench.device).manual_seed(4000)
        shape = self.samples.shape[2:]
        shown = simulate(
            self.samples, setting.plan, generator.manual_seed(4000), prune=setting.prune, size=setting.size
        )
        words = rebuilder.release(self.samples, setting.plan, generator.manual_seed(4000))
        rebuilt = rebuilder.rebuild(words, setting.plan, shape).round().to(torch.uint8)
        save_tiles(self.work.sample(setting.name), torch.stack((repeat_pixels(shown, shape), rebuilt), 1).flatten(0, 1))


def save_tiles(path: Path, tiles: Tensor) -> None:
    """Save uint8 [K, C, H, W] side by side as one image."""
    row = np.concatenate(list(tiles.permute(0, 2, 3, 1).cpu().numpy()), axis=1)
    Image.fromarray(row[..., 0] if row.shape[2] == 1 else row).save(path, format="PNG")
