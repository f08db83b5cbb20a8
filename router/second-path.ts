/**
 * A second path in a field of a request (`isPathName`): WebDAV copies to `Destination`, S3 from `x-amz-copy-source`. Only the service knows
 * what it reads there, and what lies below it. So where rules guard a part of a service, no such request reaches it (security statement R3).
 */
import { withBrackets } from '../protocol/base/host-port.ts'
import type { HttpRequest } from '../protocol/exchange.ts'
import { hasTwin, hasWhere, isPathName } from '../protocol/http/headers.ts'
import type { CompiledRoute } from './compiled.ts'
import { isGuarded } from './match.ts'
import { captureNames } from './target.ts'

/** Of the fields that the upstream gets. */
export function hasSecondPath({ headers }: HttpRequest, { requestRules }: CompiledRoute): boolean {
  return hasWhere(headers, name => isPathName(name) && !(requestRules && hasTwin(requestRules.remove, name)))
}

/**
 * Routes whose callers may not have all that their service holds: something else is demanded of callers for another part of it, or the route
 * itself allows only some names in paths. Equal demands are one.
 */
export function guardedInPart(
  routes: readonly CompiledRoute[],
  resolve: ReadonlyMap<string, string>,
): Set<CompiledRoute> {
  const demands = new Map<string, Set<string>>()
  for (const guard of routes.filter(isGuarded)) {
    const demand = demandOf(guard)
    const guarded = guard.answer === undefined ? [guard] : routes.filter(route => keepsFrom(guard, route))
    for (const service of guarded.flatMap(route => servicesOf(route, resolve))) {
      const its = demands.get(service)
      if (its === undefined) demands.set(service, new Set([demand]))
      // Two are as good as all.
      else if (its.size < 2) its.add(demand)
    }
  }
  const all = [...demands].map(([service, its]) => ({ ends: endsOf(service), its }))
  const patterns = all.filter(({ ends: [start, end] }) => start !== end)
  const isGuardedBeside = (route: CompiledRoute) => {
    const own = demandOf(route)
    const hasOther = (its: Set<string> | undefined) => its !== undefined && (its.size > 1 || !its.has(own))
    return servicesOf(route, resolve).some(service => {
      const ends = endsOf(service)
      const others = ends[0] === ends[1] ? patterns : all
      return hasOther(demands.get(service)) || others.some(other => hasOther(other.its) && mayBeOne(ends, other.ends))
    })
  }
  return new Set(routes.filter(route => allowsSomePaths(route) || isGuardedBeside(route)))
}

/** Names that are in the target, too, choose a service, and no path of it. */
function allowsSomePaths({ allowed, template }: CompiledRoute): boolean {
  const inTarget = template === undefined ? [] : captureNames(template)
  return [...allowed.keys()].some(name => !inTarget.includes(name))
}

function demandOf({ route: { allow, verify, answer } }: CompiledRoute): string {
  return JSON.stringify([allow, verify, answer !== undefined])
}

/** Whether an answer refuses what would reach the route's service without it. */
function keepsFrom(guard: CompiledRoute, route: CompiledRoute): boolean {
  const [to, from] = [guard.segments, route.segments]
  if (guard.answer!.status < 400 || route.answer !== undefined || from.length > to.length) return false
  const [hosts, others] = [guard.route.match.hosts, route.route.match.hosts]
  const isShared = (host: string) => host.includes('*') || others!.some(one => one === host || one.includes('*'))
  if (hosts && others && !hosts.some(isShared)) return false
  return from.every((one, i) => one === undefined || to[i] === undefined || one === to[i])
}

/** Host and port, as written and as dialled, with `*` for what the caller chooses. */
function servicesOf({ target, template }: CompiledRoute, resolve: ReadonlyMap<string, string>): string[] {
  if (target !== undefined) {
    const dialled = `${withBrackets(target.dialHost)}:${target.dialPort}`
    return [...new Set([`${withBrackets(target.host)}:${target.port}`, dialled].map(withoutDot))]
  }
  if (template === undefined) return []
  const pattern = withoutDot(`${template.parts[0]!}*${template.parts.at(-1)!}:${template.port}`.toLowerCase())
  const ends = endsOf(pattern)
  const resolved = [...resolve].filter(([name]) => mayBeOne(ends, endsOf(withoutDot(name))))
  return [pattern, ...resolved.map(([, address]) => address)]
}

function withoutDot(service: string): string {
  return service.replace(/\.(?=:[0-9]+$)/, '')
}

type Ends = readonly [start: string, end: string]

function endsOf(service: string): Ends {
  const star = service.indexOf('*')
  return star === -1 ? [service, service] : [service.slice(0, star), service.slice(star + 1)]
}

function mayBeOne([start, end]: Ends, [otherStart, otherEnd]: Ends): boolean {
  const ends = end.endsWith(otherEnd) || otherEnd.endsWith(end)
  return ends && (start.startsWith(otherStart) || otherStart.startsWith(start))
}
