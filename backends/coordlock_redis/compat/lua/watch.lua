local is_in_queue = is_there
function is_there(queue, id, token)
  if id == FOREIGN then look(queue) end
  return is_in_queue(queue, id, token)
end
