/** The path for the upstream: the caller's bytes, with the route's prefix stripped or replaced. */
import type { CompiledRoute } from './compiled.ts'
import { pathEnd, segmentOffset } from './path.ts'

/** What may be read as `//host` at the beginning of a path: parameters are dropped and `%2f` is decoded, once or more. */
const AUTHORITY = /^\/(?:(?:;|%(?:25)*3b)[^/?]*)?(?:\/|%(?:25)*2f)/i

/** Undefined if the result could be read as another authority. */
export function rewritePath(route: CompiledRoute, path: string): string | undefined {
  if (route.cutSegments === 0 && route.prefix === '') return path
  const rest = path.slice(segmentOffset(path, route.cutSegments, pathEnd(path)))
  if (AUTHORITY.test(rest)) return undefined
  const joined = route.prefix + rest
  return joined.startsWith('/') ? joined : `/${joined}`
}
