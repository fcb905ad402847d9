"""Evidence and speed figures; every report in ``reports/`` is written from here."""
