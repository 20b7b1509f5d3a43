import contextlib

from django.core.management.base import BaseCommand
from django.db import transaction

import coordlock
from coordlock.integrations.django import DjangoFence, get_client
from orders.models import Parcel


class Command(BaseCommand):
    help = "Hand parcels over to the courier. Start it on each host: one of them leads."

    def handle(self, **options):
        coordlock.release_on_signals()  # another one leads at once when this one is stopped
        get_client().election("courier").run(self.lead)

    def lead(self, term):
        self.stdout.write(f"leads with token {term.token}")
        with contextlib.suppress(coordlock.StaleToken):  # another one leads already
            while not term.lost.wait(1):
                self.hand_over(term)

    @transaction.atomic
    def hand_over(self, term):
        DjangoFence().check("courier", term)
        for parcel in Parcel.objects.filter(handed_over=False):
            parcel.handed_over = True
            parcel.save()
            self.stdout.write(f"handed over parcel {parcel.pk} for {parcel.customer}")
