-- Put the program that has the key into the queue, before a newcomer; whether there is one.
local function enter(queue)
  local is_foreign, label = look(queue)
  if is_foreign and not place(queue) then
    call('ZADD', ROOT .. 'queue:' .. queue, change(), FOREIGN)
    call('SADD', ROOT .. 'queues', queue)
    call('HSET', ROOT .. 'claims:' .. queue, FOREIGN, 'lock ' .. FOREIGN .. ' ' .. label)
    last = last + 1 -- the newcomer's token
  end
  return is_foreign
end

-- A newcomer takes the key, if it is free.
local rank_in_queue = rank_in
function rank_in(queue, session)
  if not session then
    look(queue)
  elseif is_shared(queue) and not enter(queue) then
    take(queue, expiry_of(session) - now)
  end
  return rank_in_queue(queue, session)
end

local refusal_by_queues = refusal
function refusal(places)
  for _, at in ipairs(places) do enter(ARGV[at]) end
  local answer = refusal_by_queues(places)
  if answer then
    for _, at in ipairs(places) do left(ARGV[at]) end
  end
  return answer
end
