from functools import partial

from django.db import transaction
from django.http import HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from coordlock.integrations.django import get_client
from orders.models import Order, Parcel, Product, Report, SoldOut, changing_stock
from orders.tasks import pack


@require_POST
@transaction.non_atomic_requests  # the transaction must be inside of the lock
def order(request, product, customer):
    try:
        with changing_stock(product):
            taken = Product.take(product, 1)
            Order.objects.create(product=taken, customer=customer)
            transaction.on_commit(partial(pack.delay, customer))
    except Product.DoesNotExist:
        return HttpResponse("there is no such product\n", status=404)
    except SoldOut:
        return HttpResponse("sold out\n", status=410)
    return HttpResponse(f"ordered, {taken.stock} left\n")


def overview(request):
    courier = get_client().election("courier").leader()
    return JsonResponse(
        {
            "stock": dict(Product.objects.values_list("name", "stock")),
            "orders": Order.objects.count(),
            "not yet packed": Order.objects.filter(parcel=None).count(),
            "parcels": Parcel.objects.count(),
            "empty parcels": Parcel.objects.filter(order=None).count(),
            "handed over": Parcel.objects.filter(handed_over=True).count(),
            "reports": Report.objects.count(),
            "courier": courier and courier.value.decode(),
        },
        json_dumps_params={"indent": 2},
    )
