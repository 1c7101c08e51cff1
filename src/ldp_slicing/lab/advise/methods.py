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
        "Training and testing.": f"About a third of the images, or fewer, are held out, {by}. Networks are trained on "
        "the other images and tested on the held-out ones. The rounds use one split, each confirmation another one.",
        "Releases.": "Releases are simulated on this machine with an ordinary random generator. None was written, so "
        "no budget was spent.",
    }
    if learns:
        found["Utility."] = (
            "A small convolutional network learns from one release of each image, decoded with the plan and the "
            "releases alone, and is tested on decoded releases of held-out images. A larger network, tuned for the "
            "task, would do better."
        )
    found["Reconstruction."] = (
        "One network serves all plans of a view and knows the flip probability of every bit. It is trained on the "
        "other images, with new releases in every step, and reconstructs each held-out image from one release."
    )
    if chance is not None:
        of_class = " of the same class" if learns else ""
        judge = "The recogniser that was supplied" if recogniser else "A network that is trained on the other images"
        found["Linkage."] = (
            f"{judge} embeds unprotected images. Two attacks compare a release with unprotected images: this network "
            "on the reconstructed image, and a second network that was trained to predict the embeddings from the "
            "released bits. The stronger attack counts. Rank-1 is how often a release is nearest to an image of its "
            f"own group, among one image of each group{of_class}; guessing gives {100 * chance:.2f} %. Verification is "
            "the share of pairs of a release and an unprotected image that are correctly classified as the same group "
            f"or different groups{', all of one class' if learns else ''}. Half of the pairs are of the same group."
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
        "clearly exceed the limit there, it is too weak to test the limit, and the answer is “cannot tell”. If the "
        "table of this software has a stronger result for the same pruning and plan, with no more pixels and no larger "
        "eps, that result is compared with the limit instead."
    )
    found["What this does not say."] = (
        "The attacks use small networks, and the failure of an attack shows only that this attack failed. The promise "
        "for a release is on its card, and these numbers are not a part of it. A setting that is chosen by them "
        "depends on the sources, so the choice itself reveals something about them."
    )
    return found


def _describe_stages(stages: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for name, one in stages.items():
        learners = f"{one['learning']:,} steps for each learner and " if one["learning"] else ""
        settings = counted(len(one["settings"]), "setting")
        parts.append(f"{name.capitalize()}: {settings}, {learners}{one['attacking']:,} steps for each attack. ")
    return "".join(parts)
