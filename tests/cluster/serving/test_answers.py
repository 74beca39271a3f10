"""What the APIs of daemons have in common."""

import json
import math

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from txtopo.cluster.serving.answers import Json, errors_as_json
from txtopo.errors import ClusterError

TEXT = "the file 'a\udcff.csv' has no header"


def test_half_a_surrogate_pair():
    """A name of a file that is no UTF-8 comes back as it was, in an answer and in an error."""

    def fails(_):
        raise ClusterError(TEXT)

    routes = [Route("/answer", lambda _: Json({"reason": TEXT})), Route("/error", fails)]
    client = TestClient(Starlette(routes=routes, **errors_as_json()))
    assert json.loads(client.get("/answer").content) == {"reason": TEXT}
    answer = client.get("/error")
    assert (answer.status_code, json.loads(answer.content)["errorMessage"]) == (503, TEXT)


def test_numbers_that_json_lacks():
    """Users' metadata may hold them: they are texts, so that whoever asks gets the rest, and can read it."""
    assert json.loads(Json({"metadata": {"0": [math.nan, -math.inf, 1.5]}}).body) == {
        "metadata": {"0": ["NaN", "-Infinity", 1.5]}
    }
