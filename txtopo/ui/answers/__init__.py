"""What the page answers, as JSON: from a folder (``source``), or from a cluster (``cluster``)."""
