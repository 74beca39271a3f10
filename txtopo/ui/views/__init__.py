"""What the page shows, as HTML made from the API's answers: documents, and parts that the browser asks for again.

A view is a function of parsed JSON, without clock, files or network: what it needs of time is in the JSON.
"""

from txtopo.ui.views.checks import check_part
from txtopo.ui.views.cluster import cluster_part
from txtopo.ui.views.errors import errors_part
from txtopo.ui.views.header import header_part
from txtopo.ui.views.pages import message_page, message_part, topologies_page, topology_page, transaction_page
from txtopo.ui.views.pictures import graph_part, plots_part
from txtopo.ui.views.runs import runs_part
from txtopo.ui.views.settings import settings_part
from txtopo.ui.views.states import rows_part, states_part
from txtopo.ui.views.topologies import topologies_part
from txtopo.ui.views.transactions import transaction_part, transactions_part

__all__ = [
    "check_part",
    "cluster_part",
    "errors_part",
    "graph_part",
    "header_part",
    "message_page",
    "message_part",
    "plots_part",
    "rows_part",
    "runs_part",
    "settings_part",
    "states_part",
    "topologies_page",
    "topologies_part",
    "topology_page",
    "transaction_page",
    "transaction_part",
    "transactions_part",
]
