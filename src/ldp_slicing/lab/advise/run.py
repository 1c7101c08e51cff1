"""The whole run: read, plan the time, measure in rounds of successive halving, confirm, answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ldp_slicing.lab.advise.budget import (
    CONFIRMED,
    ENOUGH,
    FEWEST,
    LONGER,
    MOST,
    RESERVE,
    SEEDS,
    Costs,
    Shares,
    most_settings,
    rounds_of,
    seconds_needed,
    stage_steps,
)
from ldp_slicing.lab.advise.findings import Answer, SettingFinding, answer, survivors
from ldp_slicing.lab.advise.gather import controls, gather, unprotected
from ldp_slicing.lab.advise.grid import Setting, tried_sides
from ldp_slicing.lab.advise.intervals import Estimate
from ldp_slicing.lab.advise.learning import Bench
from ldp_slicing.lab.advise.measuring import Measurer, attack_name
from ldp_slicing.lab.advise.networks import FEW, Stopped
from ldp_slicing.lab.advise.prepare import parameters_of, prepare, read, samples_of, settings_of
from ldp_slicing.lab.advise.reconstruction import train_reconstructor
from ldp_slicing.lab.advise.request import Request, Talk
from ldp_slicing.lab.advise.sources import SMALLEST, SourceSet, shrink_all
from ldp_slicing.lab.advise.work import Work, open_work
from ldp_slicing.lab.learners.training import find_device
from ldp_slicing.lab.provenance import commit, hardware
from ldp_slicing.version import __version__
from ldp_slicing.wording import counted

TIMING = 0.1  # the share of the time for timing; one measurement that has begun ends
WORTHWHILE = 1.5  # times the steps of the round before is the least that another round must offer


@dataclass(frozen=True)
class Result:
    """Everything that a report needs.

    findings: of the settings that were measured. controls, unprotected: attacks and learner on unprotected images.
    tried: settings that there was time for. stages: the records of the stages. samples: uint8 [K, C, H, W].
    """

    request: Request
    sources: SourceSet
    findings: tuple[SettingFinding, ...]
    controls: Mapping[str, Estimate]
    unprotected: Mapping[str, Estimate]
    answer: Answer
    grid: int
    tried: int
    stages: Mapping[str, Mapping[str, Any]]
    judge: Mapping[str, Any]
    finished: bool
    minutes: float
    origin: Mapping[str, str]
    samples: Tensor
    work: Work


def advise(request: Request, talk: Talk, began: float | None = None) -> Result:
    """Measure within the time, and return what was found: all of it, or what there is when the run is stopped.

    began: when the command was started, by ``time.monotonic()``. Importing PyTorch counts towards --minutes.
    """
    request.check()
    began = time.monotonic() if began is None else began
    deadline, doing = began + 60 * request.minutes, ["reading images"]

    def stop() -> bool:
        now = time.monotonic()
        talk.progress(min(now, deadline) - began, 60 * request.minutes, doing[0])
        return talk.interrupted() or now > deadline

    device = find_device(request.device)
    sources = read(request, device, stop, talk)
    prepare(request, sources, device, talk)
    longest, shortest = max(sources.shape), min(sources.shape)
    sides = [side for side in tried_sides(longest, request.sizes) if shortest * side // longest >= SMALLEST]
    with open_work(request.work, parameters_of(request, sources)) as work, _threads_restored():

        def run_at(side: int) -> _Run:
            return _Run(request, Bench.on(shrink_all(sources, side), device, stop), work, talk, deadline, doing)

        plan, before = work.get("plan"), len(work.records)
        begins = 0 if device.type == "cpu" else len(sides) - 1  # a GPU has time for the largest images
        run = run_at(plan["side"] if plan else sides[begins])
        try:
            if plan is None:
                run = _largest_affordable(run, run_at, sides[begins + 1 :])
            else:
                talk.say(f"continuing the run in {request.work}")
                torch.set_num_threads(plan["threads"])
            run.measure()
            finished = True
        except Stopped:
            finished = False
        if len(work.records) > before:
            work.put(f"time | {before}", {"minutes": (time.monotonic() - began) / 60})
        return run.result(finished)


@contextmanager
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _largest_affordable(run: _Run, run_at: Callable[[int], _Run], larger: Sequence[int]) -> _Run:
    """Time a run, then the same with larger images, as long as enough settings can be measured in the time."""
    run.talk.say(f"timing a few training steps: about {math.ceil(60 * TIMING * run.request.minutes)} seconds")
    until = time.monotonic() + 60 * TIMING * run.request.minutes
    run.choose_threads()
    run.time_everything(until)
    for side in larger:
        needed = run.minutes_needed(side)
        if needed > run.request.minutes or time.monotonic() > until:
            width, height = run.bench.sources.shape
            run.talk.say(
                f"images are shrunk to {width} x {height} pixels, and all results apply to images of this size; "
                f"larger ones need about {max(needed, run.request.minutes):.0f} minutes, or a GPU"
            )
            break
        run = run_at(side)
        run.time_everything(until)
    return run


class _Run:
    """The stages of one run. What was measured is in the records of the work folder."""

    def __init__(
        self, request: Request, bench: Bench, work: Work, talk: Talk, deadline: float, doing: list[str]
    ) -> None:
        self.request, self.bench, self.work, self.talk = request, bench, work, talk
        self.deadline, self.doing = deadline, doing
        self.measurer = Measurer(bench, work, Costs(), samples_of(request, bench), request.recogniser)
        self.grid = settings_of(request, bench.sources)
        self.learns, self.links = bool(bench.sources.classes), self.measurer.test(0) is not None
        self.trains_judge = self.links and request.recogniser is None

    def remaining(self) -> float:
        return max(0.0, RESERVE * (self.deadline - time.monotonic()))

    def choose_threads(self) -> None:
        """Use one thread where it is faster: several wait for each other if other programs use the CPU, too."""
        if self.bench.device.type != "cpu" or torch.get_num_threads() == 1:
            return
        view, plans, parts, taken = self.grid[0].view, [self.grid[0].plan], self.measurer.parts(0), dict[int, float]()
        for threads in (torch.get_num_threads(), 1):
            torch.set_num_threads(threads)
            for steps in FEW["cpu"]:
                taken[threads] = train_reconstructor(self.bench, view, plans, parts, steps, 0).seconds
        torch.set_num_threads(min(taken, key=lambda threads: taken[threads]))

    def time_everything(self, until: float) -> None:
        self.doing[0] = "timing a few training steps"
        self.measurer.time_everything(self.grid, learns=self.learns, until=until)

    def minutes_needed(self, side: int) -> float:
        """About how many minutes ENOUGH settings need if the images have ``side`` pixels, by the costs of this run."""
        pixels, effort = math.prod(self.bench.sources.shape), self.bench.effort
        larger = pixels * (side / max(self.bench.sources.shape)) ** 2
        attack, learn = (
            effort.batch_of(round(times * larger), MOST) * larger / (effort.batch_of(times * pixels, MOST) * pixels)
            for times in (4, 1)
        )
        costs = self.measurer.costs.scaled(attack=attack, score=larger / pixels, learn=learn)
        some = self.grid[:ENOUGH]
        return seconds_needed(costs, some, learns=self.learns, judge=self.trains_judge) / RESERVE / 60

    def measure(self) -> None:
        plan = self.work.get("plan") or self._plan()
        self.measurer.costs.known = {name: (fixed, step) for name, (fixed, step) in plan["costs"].items()}
        counts, alive = plan["rounds"], self.grid[: plan["settings"]]
        shares = Shares.of(len(counts), judge=self.trains_judge)
        if self.work.get("round 1") is None:  # its time counts before the steps of the stage are chosen
            self._judge(0)
        checked = any(rule.is_risk for rule in self.request.rules)
        for number, count in enumerate(counts):
            name = f"round {number + 1}"
            if self.work.get(name) is None:
                if self.work.get("confirmation") is not None:
                    break  # a run that is resumed: there was no time for this round
                left = (len(counts) - number) * shares.round + shares.confirmation + len(SEEDS) * shares.judge
                alive = self._best(alive, count) if number else alive
                views = list({one.view: one for one in alive}.values())[:CONFIRMED]
                later = self._steps(views, shares.confirmation / left, SEEDS, control=checked)[1] // LONGER
                most = min(max(FEWEST, later), MOST // LONGER ** (len(counts) - number))  # so that there is time for it
                steps = self._steps(alive, shares.round / left, (0,), control=number == 0, most=most)
                if number and steps[1] < WORTHWHILE * self._longest():
                    self.talk.say(
                        f"{name} is left out: there is not enough time to train much longer than in round {number} and "
                        "to confirm settings"
                    )
                    break
                self._begin(name, alive, steps, (0,), control=number == 0)
            alive = self._measure(name, (0,), control=number == 0)
        if self.work.get("confirmation") is None:
            for seed in SEEDS:
                self._judge(seed)
            self._begin("confirmation", *self._affordable(alive, control=checked), SEEDS, control=checked)
        self._measure("confirmation", SEEDS, control=checked)

    def _longest(self) -> int:
        """The most steps that attacks had in a round."""
        return max(int(one["attacking"]) for name, one in self.work.records.items() if name.startswith("round "))

    def _affordable(self, settings: Sequence[Setting], *, control: bool) -> tuple[list[Setting], tuple[int, int]]:
        """As many settings as can be confirmed by attacks of LONGER times the steps before, and their steps."""
        wanted = LONGER * self._longest()
        for count in range(min(CONFIRMED, len(settings)), 0, -1):
            chosen = self._best(settings, count)
            steps = self._steps(chosen, 1.0, SEEDS, control=control)
            if steps[1] >= wanted or count == 1:
                break
        return chosen, (steps[0], max(steps[1], wanted))  # at last, the run may be stopped and resumed

    def _best(self, settings: Sequence[Setting], count: int) -> list[Setting]:
        found = gather(self.work.records, settings)
        return [one.setting for one in survivors(found, self.request.rules, count)]

    def _judge(self, seed: int) -> None:
        if self.links:
            self.doing[0] = "training the network that compares images"
            self.measurer.judge(seed, self.work.records["plan"]["judge"])

    def _plan(self) -> dict[str, Any]:
        """Choose what can be afforded, and say so. The steps of a stage are chosen when it begins."""
        costs, seconds = self.measurer.costs, self.remaining()
        count = most_settings(costs, self.grid, seconds, learns=self.learns, judge=self.trains_judge)
        count = count or min(2, len(self.grid))
        step = costs.known.get("judge", (0.0, 0.0))[1]
        rounds = rounds_of(count)
        shares = Shares.of(len(rounds), judge=self.trains_judge)
        judge = max(FEWEST, min(MOST, round(shares.judge * seconds / step))) if self.trains_judge and step else 1
        several = f"up to {len(rounds)} rounds ({', '.join(map(str, rounds))} settings)"
        confirmed = counted(min(CONFIRMED, rounds[-1]), "setting")
        self.talk.say(
            f"schedule for {self.request.minutes:g} min on {hardware(self.bench.device)}: {count} of "
            f"{counted(len(self.grid), 'setting')} in {several if rounds[1:] else '1 round'}, then confirmation of "
            f"up to {confirmed} with {len(SEEDS)} other seeds"
        )
        known = {name: list(one) for name, one in costs.known.items()}
        plan = {"settings": count, "rounds": rounds, "costs": known, "judge": judge}
        plan |= {"side": max(self.bench.sources.shape), "threads": torch.get_num_threads()}
        return self.work.put("plan", plan)

    def _steps(
        self,
        settings: Sequence[Setting],
        share: float,
        seeds: Sequence[int],
        *,
        control: bool,
        most: int | None = None,
    ) -> tuple[int, int]:
        """Steps of learners and of attacks of a stage that may take this share of the remaining time."""
        return stage_steps(
            self.measurer.costs,
            settings,
            share * self.remaining(),
            learns=self.learns,
            seeds=len(seeds),
            control=self.measurer.whole if control else None,
            unprotected=seeds == SEEDS,
            most=most,
        )

    def _begin(
        self, name: str, settings: Sequence[Setting], steps: tuple[int, int], seeds: Sequence[int], *, control: bool
    ) -> None:
        """Record what a stage measures, so that it is the same if the run is resumed, and say it."""
        learning, attacking = steps
        views = {one.view for one in settings} | ({self.measurer.whole} if control else set())
        learners = len(seeds) * len(settings) + sum(map(bool, seeds))  # one of unprotected images; see _measure
        first = f"{counted(learners, 'learner')} ({counted(learning, 'step')} each), " if self.learns else ""
        attacks = f"{counted(len(seeds) * len(views), 'attack')} ({counted(attacking, 'step')} each)"
        self.talk.say(f"{name}: {counted(len(settings), 'setting')}, {first}{attacks}")
        if seeds != SEEDS and min(attacking, learning if self.learns else attacking) < FEWEST:
            self.talk.say(
                f"training for fewer than {FEWEST} steps shows little: start again with more --minutes or fewer "
                "settings, and another --out"
            )
        names = [one.name for one in settings]
        self.work.put(name, {"settings": names, "learning": learning, "attacking": attacking})

    def _measure(self, name: str, seeds: Sequence[int], *, control: bool) -> list[Setting]:
        """Measure the settings of a stage with every seed, and return them."""
        stage = self.work.records[name]
        chosen = [one for one in self.grid if one.name in stage["settings"]]
        for seed in seeds:
            views = dict.fromkeys(one.view for one in chosen)
            if control:
                views[self.measurer.whole] = None
            for view in views:
                mine = [one for one in chosen if one.view == view]
                if self.work.get(attack_name(view, mine, seed, stage["attacking"])) is None:
                    self._judge(seed)  # of a resumed run; it is not trained again for attacks that are done
                what = counted(len(mine), "setting") if mine else "images with almost no noise"
                self.doing[0] = f"{name}: attacking {what}"
                self.measurer.attack(
                    view, mine, seed, stage["attacking"], control=control and view == self.measurer.whole
                )
            for one in (*chosen, *([None] if seed else [])) if self.learns else ():
                self.doing[0] = f"{name}: learning from {one.words if one else 'unprotected images'}"
                self.measurer.learner(one, seed, stage["learning"])
        return chosen

    def _answer(self, findings: Sequence[SettingFinding], control: Mapping[str, Estimate]) -> Answer:
        if "plan" not in self.work.records:
            interrupted = "The run was interrupted before anything was measured."
            short = "The time was too short to measure anything: use more --minutes."
            return Answer("unfinished", interrupted if self.talk.interrupted() else short)
        return answer(findings, self.request.rules, control, classes=len(self.bench.sources.classes))

    def result(self, finished: bool) -> Result:
        records = self.work.records
        minutes = sum(one["minutes"] for name, one in records.items() if name.startswith("time |"))
        found, control = gather(records, self.grid), controls(records)
        ordered = sorted(found, key=lambda one: (-one.confirmations, -one.rounds, -one.score))
        return Result(
            self.request,
            self.bench.sources,
            tuple(ordered),
            control,
            unprotected(records),
            self._answer(ordered, control),
            len(self.grid),
            records["plan"]["settings"] if "plan" in records else 0,
            {name: one for name, one in records.items() if name.startswith(("round ", "confirmation"))},
            records.get("judge | seed 0", {}),
            finished,
            minutes,
            {
                "software": f"ldp-slicing {__version__}",
                "commit": commit(),
                "machine": hardware(self.bench.device),
                "torch": torch.__version__,
            },
            self.measurer.samples,
            self.work,
        )
