"""What was measured, for people: charts, a page, advice."""
