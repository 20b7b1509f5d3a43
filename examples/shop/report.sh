#!/bin/sh
# In the crontab of each host. For each night, put "0 3 * * *" here and there.
cd "$(dirname "$0")" || exit
exec coordlock run report --cron "* * * * *" --policy at-least-once -- python manage.py report
