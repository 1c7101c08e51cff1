"""Commands that are imported when they are used, so that each loads what it needs and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_show_locals": False,  # a local variable could hold a source
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def show_as_flags(parameters: list[Any]) -> list[Any]:
    """Have the help show options without a value as such: ``--json``, not ``--json <bool>``."""
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401
        return show_as_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Name the last argument if only one of ``SRC... DST`` was given: it would be taken for DST."""
        given = list(args)  # the parser takes them from the list
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if not error.message and getattr(error.param, "nargs", 1) < 0:  # it is missing, and takes several values
                last: Any = [one for one in self.params if one.param_type_name == "argument"][-1]
                if isinstance(self.make_parser(ctx).parse_args(given)[0].get(last.name), str):
                    error.param = last
            raise


class CommandGroup(TyperGroup):
    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401
        return show_as_flags(super().get_params(ctx))


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
