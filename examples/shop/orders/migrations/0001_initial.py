import django.db.models.deletion
from django.db import migrations, models


def fill_the_stock(apps, schema_editor):
    products = apps.get_model("orders", "Product").objects
    for name in ("book", "pen"):
        products.create(name=name, stock=1000)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Parcel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("customer", models.CharField(max_length=50)),
                ("handed_over", models.BooleanField(default=False)),
            ],
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=50, unique=True)),
                ("stock", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Report",
            fields=[
                ("slot", models.CharField(max_length=50, primary_key=True, serialize=False)),
                ("orders", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("customer", models.CharField(max_length=50)),
                (
                    "parcel",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, to="orders.parcel"
                    ),
                ),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="orders.product"
                    ),
                ),
            ],
        ),
        migrations.RunPython(fill_the_stock, migrations.RunPython.noop),
    ]
