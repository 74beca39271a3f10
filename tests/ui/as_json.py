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

VIEWS = {
    "topology page": lambda a: views.topology_page(a.header()),
    "transaction page": lambda a: views.transaction_page(a.header(), a.transaction()),
    "topologies page": lambda a: views.topologies_page(a.topologies()),
    "message page": lambda a: views.message_page(a.text, a.text),
    "header": lambda a: views.header_part(a.header()),
    "plots": lambda a: views.plots_part(a.plots()),
    "graph": lambda a: views.graph_part(a.graph()),
    "states": lambda a: views.states_part(a.states()),
    "rows": lambda a: views.rows_part(a.rows()),
    "errors": lambda a: views.errors_part(a.errors()),
    "settings": lambda a: views.settings_part(a.settings()),
    "runs": lambda a: views.runs_part(a.runs()),
    "transactions": lambda a: views.transactions_part(a.transactions()),
    "transaction": lambda a: views.transaction_part(a.transaction()),
    "check": lambda a: views.check_part(a.check()),
    "check that found faults": lambda a: views.check_part(a.check("differs")),
    "topologies": lambda a: views.topologies_part(a.topologies()),
    "cluster": lambda a: views.cluster_part(a.cluster()),
}
"""Each view of an invented run, by its name."""
