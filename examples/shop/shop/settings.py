"""The settings. What differs between machines comes from the environment."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SECRET_KEY", "for trials only")
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = ["coordlock.integrations.django", "orders"]
MIDDLEWARE = [
    "coordlock.integrations.django.LockMiddleware"
]  # 423 for a busy lock, 503 for no answer
ROOT_URLCONF = "shop.urls"
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

if "PGHOST" in os.environ:  # libpq reads the other variables, such as PGUSER
    DATABASE = {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}
else:
    DATABASE = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", BASE_DIR / "shop.sqlite3"),
        "OPTIONS": {"timeout": 30},
    }
DATABASES = {"default": {**DATABASE, "ATOMIC_REQUESTS": True}}

# Without the variable, locks cover this machine only. `coordlock` in cron reads it, too.
COORDLOCK = {"url": os.environ.get("COORDLOCK_URL", "local://"), "timeout": 10}

CELERY_COORDLOCK = COORDLOCK
CELERY_BROKER_URL = os.environ.get("BROKER_URL", "redis://localhost:6379/0")
# When a worker's machine dies, another worker gets its tasks after this. Longer than any task.
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 300}
CELERY_BEAT_SCHEDULE = {"restock": {"task": "orders.tasks.restock", "schedule": 10.0}}

PACKING_SECONDS = 2  # what it takes to pack a parcel, in this example
