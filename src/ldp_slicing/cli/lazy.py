"""Commands that are imported when they are used, so that each loads what it needs and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ldp_slicing.cli.output import watched_output

SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_show_locals": False,  # a local variable could hold a source
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


WORDS = {"str": "TEXT", "path": "PATH", "Path": "PATH", "int": "NUMBER", "float": "NUMBER"}  # for types of Python

REWORDED = (  # in messages about values, by the library that typer checks them with
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "expected a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "expected a number"),
    ("Input should be greater", "expected a number greater"),
    ("Input should be less", "expected a number less"),
)


def name_values(ctx: Any, parameters: list[Any]) -> list[Any]:  # noqa: ANN401
    """Have the help name values as a reader would: ``--json`` has none, and ``--workers NUMBER`` is no ``<int range>``.

    An argument is named by its own word, such as SRC, so its type is not shown. Older releases of typer do that.
    """
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
        elif hasattr(one, "display_type_rich") and one.param_type_name == "argument":
            one.display_type_rich = lambda ctx: None
        elif hasattr(one, "display_type") and one.metavar is None:
            kind = one.display_type(ctx).strip("<>").removeprefix("list[").removesuffix("]").removesuffix(" range")
            one.metavar = WORDS.get(kind, kind)
    return parameters


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401
        return name_values(ctx, super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Write ``SRC... DST``, not ``{SRC}... {DST}``."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Name the last argument if only one of ``SRC... DST`` was given: it would be taken for DST."""
        given = list(args)  # the parser takes them from the list
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for theirs, ours in REWORDED:
                error.message = error.message.replace(theirs, ours)
            if not error.message and getattr(error.param, "nargs", 1) < 0:  # it is missing, and takes several values
                last: Any = [one for one in self.params if one.param_type_name == "argument"][-1]
                if isinstance(self.make_parser(ctx).parse_args(given)[0].get(last.name), str):
                    error.param = last
            raise


class CommandGroup(TyperGroup):
    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with watched_output():
            return super().main(*args, **kwargs)

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401
        return name_values(ctx, super().get_params(ctx))


def lazy_group(package: str, summaries: Mapping[str, str]) -> type[TyperGroup]:
    """A group of commands. The command ``my-name`` is the function ``my_name`` of the module ``package.my_name``.

    A module that has an ``app`` is a group of its own. One that has an ``EPILOG`` ends its help with it.
    """

    class LazyGroup(CommandGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's, or typer's copy of it
            return list(summaries)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
            """Suggest a command for a misspelt one. Typer's suggestions do not know commands that are not imported."""
            if args[0] not in summaries and (near := get_close_matches(args[0], summaries, 1)):
                ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
            return super().resolve_command(ctx, args)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
            if cmd_name not in summaries:
                return None
            function_name = cmd_name.replace("-", "_")
            module = import_module(f"{package}.{function_name}")
            if hasattr(module, "app"):
                group = get_command(module.app)
                group.name, group.short_help = cmd_name, summaries[cmd_name]
                return group
            single = typer.Typer(**SETTINGS)
            epilog = getattr(module, "EPILOG", None)
            single.command(cmd_name, cls=Command, short_help=summaries[cmd_name], epilog=epilog)(
                getattr(module, function_name)
            )
            return get_command(single)

    return LazyGroup
