"""How the numbers of a report were measured, in plain words. It needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ldp_slicing.lab.advise.budget import SEEDS
from ldp_slicing.wording import counted


def describe_methods(
    *, grouped: bool, learns: bool, chance: float | None, recogniser: bool, stages: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Sentences by their title. chance: the rank-1 rate of guessing; None if linkage was not measured."""
    by = "by groups, so that no group is in both parts" if grouped else "so that equal images are in the same part"
    found = {
        "Parts.": f"A part of the images, at most about a third, is held out, {by}. Networks are trained on the other "
        "part and measured on the held-out part. The rounds use one division, and each confirmation another one.",
        "Releases": "are simulated on this machine with an ordinary random generator. None was written, so no budget "
        "was spent.",
    }
    if learns:
        found["Utility."] = (
            "A small convolutional network learns from one release of each image, decoded with the plan and the "
            "releases alone, and is tested on decoded releases of held-out images. A larger network that is tuned for "
            "the task would reach more."
        )
    found["Reconstruction."] = (
        "One network for all plans of a view is told the flip probability of every bit. It is trained on the other "
        "part, of which it may make as many releases as it likes, and reconstructs held-out images from one release "
        "each."
    )
    if chance is not None:
        of_class = " of the same class" if learns else ""
        judge = "The recogniser that was supplied" if recogniser else "A network that is trained on the other part"
        found["Linkage."] = (
            f"{judge} embeds unprotected images. Two attacks compare a release with unprotected images: this network "
            "on the reconstructed image, and a student that reads the released bits and was taught the network's "
            "embeddings. The stronger one counts. Rank-1 is how often a release is nearest to another image of its own "
            f"group, among one image of each group{of_class}; guessing gives {100 * chance:.2f} %. Verification is the "
            "share of pairs of a release and an unprotected image that are correctly classified as the same group or "
            f"different groups{', all of one class' if learns else ''}. Half of the pairs are of the same group."
        )
    found["Time."] = (
        "Successive halving measures many settings with little training, then fewer with more. The settings that are "
        "kept range from the most useful one within the limits to the least revealing one, because attacks get "
        "stronger with more training. "
        f"{_describe_stages(stages)}The confirmation has {len(SEEDS)} other seeds: other weights, other noise and "
        "other held-out images."
    )
    found["Limits."] = (
        "A limit is met only if the whole 95 % interval meets it, in every confirmation run. If more training made an "
        "attack stronger, the same increase is added once more before its result is compared with the limit. Each "
        "attack is also run on images with almost no noise (eps 200), after equally long training. If it does not "
        "clearly exceed the limit there, it is too weak to test it, and the answer is “cannot tell”. If a stronger "
        "result comes with this software, for the same view and plan with no more pixels and no larger eps, it is "
        "compared with the limit instead."
    )
    found["What this does not say."] = (
        "The attacks are small, and an attack that fails shows only that this attack failed. The guarantee of a "
        "release is on the card that is written beside it; these numbers are no part of it. The setting was chosen by "
        "looking at the sources, so the choice itself reveals something about them."
    )
    return found


def _describe_stages(stages: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for name, one in stages.items():
        learners = f"{one['learning']:,} steps for each learner and " if one["learning"] else ""
        settings = counted(len(one["settings"]), "setting")
        parts.append(f"{name.capitalize()}: {settings}, {learners}{one['attacking']:,} steps for each attack. ")
    return "".join(parts)
