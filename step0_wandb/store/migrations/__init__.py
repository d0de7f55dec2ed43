"""The steps from an older schema to the next, run by alembic; never edited once released."""
