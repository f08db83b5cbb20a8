/**
 * A second path in a field of a request (`isPathName`): WebDAV copies to `Destination`, S3 from `x-amz-copy-source`. Where routes demand
 * something, it must lead to the route of the request, in each way to read it (security statement R3), and where it leads, no other route
 * may demand anything, for any method and any fields: a copy is written by one method and read by another. Below another path, it must not
 * lead to a route that demands something else.
 */
import type { HttpRequest } from '../protocol/exchange.ts'
import { hasTwin, isAuthority, isPathName } from '../protocol/http/headers.ts'
import type { CompiledRoute, CompiledTable } from './compiled.ts'
import { isGuarded, matchRequest, routeOf } from './match.ts'
import { decodeSegment, pathEnd } from './path.ts'

/** Most such fields of a request, and most characters of all texts that are made of them. So comparing them costs little. */
const MAX_FIELDS = 4
const MAX_CHARS = 8 * 1024
/** Most segments that a service is mounted below. */
const MAX_MOUNT = 8

const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\/([^/?#\\]*)(.*)$/is
const SCHEME = /^[a-z][a-z0-9+.-]*:/i

/** Whether a service may read a path of another route from a field. `isAllowed`: whether this route takes a path's captured names. */
export function leadsElsewhere(
  table: CompiledTable,
  route: CompiledRoute,
  request: HttpRequest,
  isAllowed: (path: string) => boolean,
): boolean {
  if (!table.isGuarded) return false
  const values = pathValues(request, route)
  if (values.length === 0) return false
  // The service reads a path that nobody has rewritten.
  if (route.prefix !== '' || table.besideGuarded.has(route) || values.length > MAX_FIELDS) return true
  const mounts = mountsOf(request.path)
  const fields = [request.headers]
  if (table.guardHeaders.length > 0) fields.push([...request.headers, ...table.guardHeaders])
  let chars = 0
  for (const value of values) {
    const absolute = ABSOLUTE.exec(value)
    if (absolute === null && SCHEME.test(decodeSegment(value))) return true
    const [authority, rest] = absolute === null ? [request.authority, value] : [absolute[1]!, absolute[2]!]
    if (!isAuthority(authority)) return true
    for (const mount of mounts) {
      const path = rest.startsWith('/') ? mount + rest : `${mount}/${rest}`
      for (const host of new Set([request.authority, authority])) {
        for (const headers of fields) {
          chars += path.length
          if (chars > MAX_CHARS) return true
          const match = matchRequest(table, { ...request, authority: host, path, headers })
          const isSame = routeOf(match) === route
          if (mount === '' ? !isSame || !isAllowed(path) : !isSame && demands(table, match)) return true
        }
      }
    }
  }
  return false
}

function demands(table: CompiledTable, match: ReturnType<typeof matchRequest>): boolean {
  const route = routeOf(match)
  return route === undefined ? match.kind !== 'none' : isGuarded(route) || table.besideGuarded.has(route)
}

/** Of the fields that the upstream gets. */
function pathValues({ headers }: HttpRequest, { requestRules }: CompiledRoute): string[] {
  const values: string[] = []
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    if (isPathName(name) && !(requestRules && hasTwin(requestRules.remove, name))) values.push(headers[i + 1]!)
  }
  return values
}

/**
 * Where the service may take the path to begin, since it is mounted below others, or since `stripPrefix` cut them off: Swift reads
 * `/container/object` below `/v1/account`. Text without a slash may be relative to the folder.
 */
function mountsOf(path: string): Set<string> {
  const folders = path.slice(0, pathEnd(path)).split('/').slice(0, -1)
  const mounts = new Set([folders.join('/')])
  for (let count = 1; count <= Math.min(folders.length, MAX_MOUNT); count++)
    mounts.add(folders.slice(0, count).join('/'))
  return mounts
}
