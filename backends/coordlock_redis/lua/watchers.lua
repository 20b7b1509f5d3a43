-- Have the departure of a contender told to an inbox; behind "+", its values, too.
local function watch(queue, id, inbox)
  local key = ROOT .. 'watchers:' .. queue
  if call('HSETNX', key, id, inbox) == 1 then return end
  local watchers = call('HGET', key, id)
  if not string.find(' ' .. watchers .. ' ', ' ' .. inbox .. ' ', 1, true) then
    call('HSET', key, id, watchers .. ' ' .. inbox)
  end
end
