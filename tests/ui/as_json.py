"""The page's views of JSON, as the API has it: tests write answers down in that form."""

import functools
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import txtopo.ui.views
from txtopo.files.records import from_json


def of_json(view: Callable[..., Any]) -> Callable[..., Any]:
    """Make a view take JSON: each argument becomes what the view says that it takes."""
    kinds = [kind for name, kind in typing.get_type_hints(view).items() if name != "return"]

    @functools.wraps(view)
    def shown(*given: Any) -> Any:
        return view(
            *(each if each is None else from_json(each, kind) for each, kind in zip(given, kinds, strict=False))
        )

    return shown


views = SimpleNamespace(
    **{
        name: getattr(txtopo.ui.views, name) if name.startswith("message") else of_json(getattr(txtopo.ui.views, name))
        for name in txtopo.ui.views.__all__
    }
)
