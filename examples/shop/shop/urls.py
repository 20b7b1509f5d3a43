from django.urls import path
from orders import views

urlpatterns = [
    path("", views.overview),
    path("order/<product>/<customer>", views.order),
]
