-- How Argo CD judges a Backfill; goes into argocd-cm as resource.customizations.health.backfill.dev_Backfill.
local health = {status = "Progressing", message = "not picked up by the operator yet"}
local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= nil and obj.metadata.generation ~= nil
    and status.observedGeneration < obj.metadata.generation then
  health.message = "the operator has not seen this change yet"
  return health
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end

local succeeded, running, published = conditions.Succeeded, conditions.Running, conditions.Published
if succeeded ~= nil and succeeded.status == "True" then
  return {status = "Healthy", message = succeeded.message or ""}
end
if succeeded ~= nil and succeeded.status == "False" then
  return {status = "Degraded", message = succeeded.message or succeeded.reason}
end
if conditions.Stalled ~= nil and conditions.Stalled.status == "True" then
  return {status = "Degraded", message = conditions.Stalled.message or conditions.Stalled.reason}
end
if published ~= nil and published.reason == "WaitingForApproval" then
  return {status = "Suspended", message = published.message or ""}
end
local paused = published ~= nil and published.reason == "Suspended" and published or running
if obj.spec.suspend == true and paused ~= nil and paused.reason == "Suspended" then
  return {status = "Suspended", message = paused.message or ""}
end
for _, name in ipairs({"HandedOver", "Published", "Running", "Planned"}) do
  local condition = conditions[name]
  if condition ~= nil then
    local progress = status.progress and status.progress.summary or ""
    health.message = condition.reason .. (progress ~= "" and (", " .. progress) or "")
    return health
  end
end
return health
