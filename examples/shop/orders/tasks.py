import time

from celery import shared_task
from celery.utils.log import get_task_logger
from django.conf import settings
from django.db import transaction

from coordlock.integrations.celery import LockedTask
from coordlock.integrations.django import DjangoFence
from orders.models import Order, Parcel, Product, changing_stock

logger = get_task_logger(__name__)


@shared_task(
    base=LockedTask,
    bind=True,
    lock="parcels/{customer}",  # one at a time per customer; others are sent again a second later
    busy_countdown=1,
    acks_late=True,  # if the process is killed, another one does the task
    reject_on_worker_lost=True,
)
def pack(self, customer):
    """Pack all that a customer has ordered into one parcel."""
    with transaction.atomic():
        # Before anything is read: from here on, an earlier holder that was paused commits nothing.
        DjangoFence().check(self.grant.name, self.grant)
        orders = list(
            Order.objects.filter(customer=customer, parcel=None).values_list("pk", flat=True)
        )
    if not orders:
        return  # an earlier task has packed them
    time.sleep(settings.PACKING_SECONDS)
    with transaction.atomic():
        # Again: refuses this process if it has lost its lock meanwhile, such as by a pause.
        DjangoFence().check(self.grant.name, self.grant)
        parcel = Parcel.objects.create(customer=customer)
        Order.objects.filter(pk__in=orders).update(parcel=parcel)
    logger.info("packed %d orders of %s", len(orders), customer)


@shared_task
def restock():
    """Add to the stock; beat sends this once per scheduled time, though two beats run."""
    for name in Product.objects.values_list("name", flat=True):
        with changing_stock(name):
            Product.take(name, -10)
