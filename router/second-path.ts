/**
 * A second path in a field of a request (`isPathName`): WebDAV copies to `Destination`, S3 from `x-amz-copy-source`. Only the service knows
 * what it reads there, and what lies below it. So where rules guard a part of a service, no such request reaches it (security statement R3).
 */
import type { HttpRequest } from '../protocol/exchange.ts'
import { hasTwin, isPathName } from '../protocol/http/headers.ts'
import type { CompiledRoute } from './compiled.ts'
import { isGuarded } from './match.ts'

/** Of the fields that the upstream gets. */
export function hasSecondPath({ headers }: HttpRequest, { requestRules }: CompiledRoute): boolean {
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    if (isPathName(name) && !(requestRules && hasTwin(requestRules.remove, name))) return true
  }
  return false
}

/** Routes whose callers may not have all that their service holds: another route to it demands something, or they allow only some names. */
export function guardedInPart(routes: readonly CompiledRoute[]): Set<CompiledRoute> {
  const guards = new Map<string, Set<CompiledRoute>>()
  for (const guard of routes.filter(isGuarded)) {
    // An answer keeps requests from the services that would get them without it.
    const guarded = guard.answer === undefined ? [guard] : routes.filter(route => leadsTo(route, guard))
    for (const service of guarded.map(serviceOf)) guards.set(service, (guards.get(service) ?? new Set()).add(guard))
  }
  const patterns = [...guards.keys()].filter(service => service.includes('*'))
  const isGuardedBeside = (route: CompiledRoute) => {
    const own = serviceOf(route)
    const services = own.includes('*') ? [...guards.keys()] : [own, ...patterns]
    return services.some(service => {
      const its = guards.get(service)
      return its !== undefined && its.size > Number(its.has(route)) && mayBeOne(service, own)
    })
  }
  return new Set(routes.filter(route => route.allowed.size > 0 || isGuardedBeside(route)))
}

/** Whether a path that both match can exist, and the second is at least as long. */
function leadsTo({ segments, answer }: CompiledRoute, to: CompiledRoute): boolean {
  if (answer !== undefined || segments.length > to.segments.length) return false
  return segments.every((one, i) => one === undefined || to.segments[i] === undefined || one === to.segments[i])
}

/** Its host and port, with `*` for what the caller chooses. */
function serviceOf({ target, template }: CompiledRoute): string {
  if (target !== undefined) return `${target.dialHost.replace(/\.$/, '')}:${target.dialPort}`
  if (template === undefined) return ''
  return `${template.parts[0]!.toLowerCase()}*${template.parts.at(-1)!.toLowerCase()}:${template.port}`
}

function mayBeOne(service: string, other: string): boolean {
  const [start, end = start] = service.split('*') as [string, string?]
  const [otherStart, otherEnd = otherStart] = other.split('*') as [string, string?]
  return overlaps(start, otherStart, 'startsWith') && overlaps(end, otherEnd, 'endsWith')
}

function overlaps(one: string, other: string, how: 'startsWith' | 'endsWith'): boolean {
  return one[how](other) || other[how](one)
}
