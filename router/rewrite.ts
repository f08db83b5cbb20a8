/** The path for the upstream: the caller's bytes, with the route's prefix stripped or replaced. */
import type { CompiledRoute } from './compiled.ts'
import { pathEnd, segmentOffset } from './path.ts'

/** Undefined if the result could be read as another authority (`//host`). */
export function rewritePath(route: CompiledRoute, path: string): string | undefined {
  if (route.cutSegments === 0 && route.prefix === '') return path
  const rest = path.slice(segmentOffset(path, route.cutSegments, pathEnd(path)))
  if (rest.startsWith('//')) return undefined
  const joined = route.prefix + rest
  return joined.startsWith('/') ? joined : `/${joined}`
}
