"""Makes the table of `DjangoFence`."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


def sort_by_bytes(apps: Any, schema_editor: Any) -> None:
    """Let no update of the operating system's collations make the index lose a row.

    The resource would be inserted anew, and stale tokens admitted.
    """
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            'ALTER TABLE coordlock_fence ALTER resource TYPE varchar(255) COLLATE "C"'
        )


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    """The table, empty."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="FenceMark",
            fields=[
                ("resource", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("exclusive_token", models.BigIntegerField(default=0)),
                ("shared_token", models.BigIntegerField(default=0)),
            ],
            options={"db_table": "coordlock_fence"},
        ),
        migrations.RunPython(sort_by_bytes, migrations.RunPython.noop),
    ]
