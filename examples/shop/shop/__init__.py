from shop.celery import app

__all__ = ["app"]
