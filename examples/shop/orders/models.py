from django.db import models

from coordlock.integrations.django import locked_atomic


class Product(models.Model):
    name = models.CharField(max_length=50, unique=True)
    stock = models.IntegerField()

    @classmethod
    def take(cls, name, quantity):
        """A product with ``quantity`` less in stock; negative quantities add to the stock.

        Call it within `changing_stock`.
        """
        product = cls.objects.get(name=name)
        if product.stock < quantity:
            raise SoldOut(name)
        product.stock -= quantity
        product.save()
        return product


class SoldOut(Exception):
    """There is not enough of a product."""


def changing_stock(name):
    """The lock of a product's stock, and a transaction that is committed before its release.

    ``fenced``: even a process that was paused for minutes can't overwrite what others did since.
    """
    return locked_atomic(f"stock/{name}", fenced=True)


class Parcel(models.Model):
    customer = models.CharField(max_length=50)
    handed_over = models.BooleanField(default=False)


class Order(models.Model):
    product = models.ForeignKey(Product, models.PROTECT)
    customer = models.CharField(max_length=50)
    parcel = models.ForeignKey(Parcel, models.PROTECT, null=True)


class Report(models.Model):
    slot = models.CharField(max_length=50, primary_key=True)
    orders = models.IntegerField()
