"""Cards that somebody changed: what was done to the text of a true card, and how the reader refuses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Content = dict[str, Any]


def _changed(change: Callable[[Content], object]) -> Callable[[str], str]:
    """Change the content of a card, and write it as this software would."""

    def apply(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content, indent=2) + "\n"

    return apply


def _statement(change: Callable[[Content], object]) -> Callable[[str], str]:
    return _changed(lambda card: change(card["statements"][0]))


def _level(number: int, **values: object) -> Callable[[str], str]:
    return _statement(lambda one: one["levels"][number].update(values))


def _replaced(old: str, new: str) -> Callable[[str], str]:
    def apply(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return apply


ATTACKS: dict[str, tuple[Callable[[str], str], str]] = {
    "an unknown key": (_changed(lambda card: card.update(note="a whole source")), "unknown key 'note'"),
    "an unknown key of a statement": (
        _statement(lambda one: one.update(note=1)),
        "unknown key 'note' in statements[0]",
    ),
    "an unknown key of a level": (_level(2, note=1), "unknown key 'note' in statements[0].levels[2]"),
    "an unknown key of a plan": (
        _statement(lambda one: one["plan"].update(note=1)),
        "unknown key 'note' in statements[0].plan",
    ),
    "an unknown key of a slice": (
        _statement(lambda one: one["plan"]["slices"][0].update(note=1)),
        "statements[0].plan.slices[0] is",
    ),
    "an unknown key of the view": (
        _statement(lambda one: one["view"].update(note=1)),
        "unknown key 'note' in statements[0].view",
    ),
    "a missing key": (_changed(lambda card: card.pop("read_this")), "lacks the key 'read_this'"),
    "a doubled eps": (
        _replaced('"epsilon_realised":', '"epsilon_realised": 0.1, "epsilon_realised":'),
        "the key 'epsilon_realised' occurs twice",
    ),
    "a doubled list": (
        _replaced('"statements":', '"statements": [], "statements":'),
        "the key 'statements' occurs twice",
    ),
    "nothing unprotected": (_changed(lambda card: card.update(not_protected=[])), "not_protected is []"),
    "less unprotected": (_changed(lambda card: card["not_protected"].pop(0)), "not_protected is"),
    "altered warnings": (
        _changed(lambda card: card["not_protected"].__setitem__(0, "nothing")),
        "not_protected[0] is 'nothing'",
    ),
    "no warnings": (_changed(lambda card: card.update(read_this=[])), "read_this is []"),
    "one warning less": (_changed(lambda card: card["read_this"].pop()), "read_this is"),
    "false advice": (
        _changed(lambda card: card["read_this"].__setitem__(1, "Nobody can see anything.")),
        "read_this[1] is 'Nobody can see anything.'",
    ),
    "one more piece of advice": (_changed(lambda card: card["read_this"].append("Send money.")), "read_this is"),
    "a false reason": (_level(1, why="certified by everybody"), "levels[1].why is 'certified by everybody'"),
    "a false name": (
        _statement(lambda one: one["plan"]["slices"][0].update(name="everything")),
        "slices[0].name is 'everything'",
    ),
    "a false remark": (
        _statement(lambda one: one["plan"].update(remark="is perfectly private")),
        "plan.remark is 'is perfectly private'",
    ),
    "a sentence that nobody measured": (
        _statement(lambda one: one["measured"].update(sentence="Nobody was recognised.")),
        "measured.sentence is 'Nobody was recognised.'",
    ),
    "another measured setting": (
        _statement(lambda one: one["measured"].update(entry="lfw-112-paper-haar-eps1-identity")),
        "measured.entry is 'lfw-112-paper-haar-eps1-identity'; it should be",
    ),
    "an unknown table": (
        _statement(lambda one: one["measured"].update(table=10**6)),
        "version 1000000 of the table of measured settings is unknown",
    ),
    "a table before the first": (_statement(lambda one: one["measured"].update(table=0)), "version 0 of the table"),
    "a false unit": (_level(1, unit="all images of the world"), "levels[1].unit is"),
    "a false bound": (_level(1, advantage_bound=0.1), "levels[1].advantage_bound is 0.1"),
    "a bound where there is none": (_level(3, means="Nobody can tell."), "levels[3].means is 'Nobody can tell.'"),
    "a key that no card has": (_level(3, vacuous=False), "unknown key 'vacuous'"),
    "a false level": (_level(2, epsilon=0.1), "levels[2].epsilon is 0.1"),
    "no levels": (_statement(lambda one: one.update(levels=[])), "levels has 0 levels"),
    "a level less": (_statement(lambda one: one["levels"].pop()), "levels has 3 levels"),
    "a level more": (_statement(lambda one: one["levels"].append(one["levels"][0])), "levels is"),
    "a false eps": (
        _statement(lambda one: one["plan"].update(epsilon_realised=0.1)),
        "plan.epsilon_realised is 0.1; it should be",
    ),
    "an eps that no number can state": (
        _statement(lambda one: [part.update(epsilon=1e308) for part in one["plan"]["slices"]]),
        "sum to an epsilon above 1.7e308",
    ),
    "an eps spent that no number can state": (
        _statement(
            lambda one: one.update(most_spent_on_one_source=dict.fromkeys(one["most_spent_on_one_source"], 1e308))
        ),
        "the eps spent on an image cannot be less than that of all its pixels; got 1e+308",
    ),
    "a false colour": (_statement(lambda one: one["view"].update(colour="none")), "view.colour is 'none'"),
    "an unknown pruning": (_statement(lambda one: one["view"].update(prune="all")), "prune must be one of"),
    "another pruning": (_statement(lambda one: one["view"].update(prune="none")), "cannot affect up to 4"),
    "another size": (_statement(lambda one: one["view"].update(size="at most 1 x 1")), "cannot have the widths"),
    "a size in other words": (_statement(lambda one: one["view"].update(size="small")), "view.size is 'small'"),
    "a size with two sides": (
        _statement(lambda one: one["view"].update(size="at most 640 x 641")),
        "view.size is 'at most 640 x 641'",
    ),
    "other padding": (
        _statement(lambda one: one["view"].update(size="at most 640 x 640, padded")),
        "view.size is 'at most 640 x 640, padded'",
    ),
    "an unknown output": (_statement(lambda one: one.update(output="jpeg")), "output must be"),
    "an impossible width": (_statement(lambda one: one.update(width=[9, 4])), "at least one pixel"),
    "three widths": (_statement(lambda one: one["width"].append(9)), "width must be two integers"),
    "too few pixels": (_level(3, why="1 pixel, each at the plan's epsilon"), "has 1 pixels"),
    "an unknown version": (_changed(lambda card: card.update(card=99)), "it has version 99"),
    "an earlier version": (_changed(lambda card: card.update(card=2)), "it has version 2"),
    "a version that is a text": (_changed(lambda card: card.update(card="3")), "card must be an integer"),
    "an unknown layout": (_changed(lambda card: card.update(keystream_layout=9)), "keystream layout 9 is unknown"),
    "a layout that is true": (
        _changed(lambda card: card.update(keystream_layout=True)),
        "must be an integer; got True",
    ),
    "praise for the software": (
        _changed(lambda card: card.update(software="ldp-slicing certified-and-perfectly-private")),
        "is not a version of this software",
    ),
    "other software": (
        _changed(lambda card: card.update(software="a whole source, in base64")),
        "is not a version of this software",
    ),
    "not a number": (_level(1, epsilon=float("nan")), "NaN is not a number in JSON"),
    "an infinite number": (_level(1, epsilon=float("inf")), "Infinity is not a number in JSON"),
    "a number that is too large": (_replaced('"epsilon_realised": ', '"epsilon_realised": 1e999'), "is too large"),
    "a huge integer": (_statement(lambda one: one.update(releases=10**4000)), "more than 18 digits"),
    "an integer for a number": (
        _statement(lambda one: one["plan"].update(epsilon_requested=20)),
        "epsilon_requested must be a number with a decimal point; got 20",
    ),
    "a number for an integer": (_statement(lambda one: one.update(releases=1.0)), "releases must be an integer"),
    "true for an integer": (_statement(lambda one: one.update(releases=True)), "releases must be an integer"),
    "a word of true bits": (
        _statement(lambda one: one["plan"].update(word_bits=True)),
        "plan.word_bits must be an integer",
    ),
    "no releases": (_statement(lambda one: one.update(releases=0)), "0 releases"),
    "never released": (_statement(lambda one: one.update(most_releases_of_one_source=0)), "0 of one source"),
    "statements that are a number": (_changed(lambda card: card.update(statements=7)), "statements must be a list"),
    "a statement that is a number": (_changed(lambda card: card.update(statements=[7])), "statements[0] must be"),
    "no statements": (_changed(lambda card: card.update(statements=[])), "at least one statement"),
    "two equal statements": (
        _changed(lambda card: card.update(statements=card["statements"][:1] * 2)),
        "two statements about 24-bit words",
    ),
    "5,000 statements": (
        _changed(lambda card: card.update(statements=[{}] * 5_000)),
        "there are 5,000 statements; a card has at most 17",
    ),
    "a plan that is a number": (_statement(lambda one: one.update(plan=7)), "plan must be an object"),
    "no slices": (_statement(lambda one: one["plan"].update(slices=[])), "at least one slice"),
    "a slice without bits": (_statement(lambda one: one["plan"]["slices"][0].update(bits="0x0")), "at least one bit"),
    "kept data that is not a name": (
        _changed(lambda card: card.update(kept_beside=[[]])),
        "kept_beside must be a text",
    ),
    "kept data with a long name": (_changed(lambda card: card.update(kept_beside=["x" * 300])), "255 characters"),
    "much kept data": (_changed(lambda card: card.update(kept_beside=[str(i) for i in range(300)])), "at most 256"),
    "kept data twice": (_changed(lambda card: card.update(kept_beside=["a", "a"])), "kept_beside is"),
    "deep nesting": (lambda text: "[" * 100_000, "nested too deeply"),
    "nesting within": (_changed(lambda card: card.update(read_this=[[[[]]]])), "read_this is"),
    "a long card": (lambda text: text + " " * (1 << 20), "more than 1,048,576 bytes"),
    "a list": (lambda text: "[]\n", "it is not a card"),
    "another document": (lambda text: '{"statements": []}\n', "it is not a card"),
    "an empty file": (lambda text: "", "it is not JSON"),
    "half a card": (lambda text: text[:99], "it is not JSON"),
    "two cards": (lambda text: text + text, "it is not JSON"),
    "a mark at its beginning": (lambda text: "\ufeff" + text, "it is not JSON"),
    "spaces": (lambda text: text + " ", "not written as this software writes"),
    "no last line feed": (lambda text: text[:-1], "not written as this software writes"),
    "another order": (
        _changed(lambda card: card.update(card=card.pop("card"))),
        "not written as this software writes",
    ),
    "another indentation": (lambda text: json.dumps(json.loads(text)) + "\n", "not written as this software writes"),
    "another escape": (_replaced("width", "\\u0077idth"), "not written as this software writes"),
    "another notation": (
        lambda text: re.sub('("epsilon_requested": [0-9.]+)', r"\g<1>0", text),
        "not written as this software writes",
    ),
}
