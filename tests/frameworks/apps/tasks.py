"""A Celery application; its prefork workers import it before they fork."""

from __future__ import annotations

import os

import celery

from tests.frameworks.apps.jobs import book

folder = os.environ["TASKS_FOLDER"]
app = celery.Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": folder,
    "data_folder_out": folder,
    "control_folder": f"{folder}/control",
}


book_later = app.task(book, name="book")
