import os

from django.core.management.base import BaseCommand

from orders.models import Order, Report


class Command(BaseCommand):
    help = "Count the orders. `coordlock run` starts it on one host for each scheduled time."

    def handle(self, **options):
        slot = os.environ["COORDLOCK_SLOT"]
        orders = Order.objects.count()
        # By its slot, so that a report that is made again replaces the first.
        Report.objects.update_or_create(slot=slot, defaults={"orders": orders})
        self.stdout.write(f"report of {slot}: {orders} orders")
