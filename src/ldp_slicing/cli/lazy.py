"""Commands that are imported when they are used, so that each loads what it needs and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_show_locals": False,  # a local variable could hold a source
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def lazy_group(package: str, summaries: Mapping[str, str]) -> type[TyperGroup]:
    """A group of commands. The command ``my-name`` is the function ``my_name`` of the module ``package.my_name``.

    A module that has an ``app`` is a group of its own.
    """

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's, or typer's copy of it
            return list(summaries)

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
            single.command(name=cmd_name, short_help=summaries[cmd_name])(getattr(module, function_name))
            return get_command(single)

    return LazyGroup
