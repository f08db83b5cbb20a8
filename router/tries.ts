/** Builds a trie of paths for each host from a table's routes, and finds duplicate routes. */
import type { ReportProblem } from './compile.ts'
import type { CompiledRoute, CompiledTable, PathNode } from './compiled.ts'

export function growTrie(routes: readonly CompiledRoute[]): Pick<CompiledTable, 'hosts' | 'wildcards' | 'anyHost'> {
  const hosts = new Map<string, PathNode>()
  const wildcards = new Map<string, PathNode>()
  let anyHost: PathNode | undefined
  for (const route of routes) {
    for (const host of route.route.match.hosts?.map(name => name.toLowerCase()) ?? []) {
      const [map, key] = host.startsWith('*.') ? [wildcards, host.slice(1)] : [hosts, host]
      plant(rootOf(map, key), route)
    }
    if (route.route.match.hosts !== undefined) continue
    anyHost ??= emptyNode()
    plant(anyHost, route)
  }
  for (const root of [...hosts.values(), ...wildcards.values(), anyHost]) sortRoutes(root)
  return { hosts, wildcards, anyHost }
}

function rootOf(map: Map<string, PathNode>, key: string): PathNode {
  let root = map.get(key)
  if (root === undefined) {
    root = emptyNode()
    map.set(key, root)
  }
  return root
}

function emptyNode(): PathNode {
  return { literals: undefined, capture: undefined, routes: [] }
}

function plant(root: PathNode, route: CompiledRoute): void {
  let node = root
  for (const segment of route.segments) {
    if (segment === undefined) {
      node.capture ??= emptyNode()
      node = node.capture
    } else {
      node.literals ??= new Map()
      node = rootOf(node.literals, segment)
    }
  }
  node.routes.push(route)
}

/** Called once for each node, when all routes are inserted. */
function sortRoutes(node: PathNode | undefined): void {
  if (node === undefined) return
  node.routes.sort(
    (a, b) =>
      b.headers.length - a.headers.length ||
      Number(b.slash) - Number(a.slash) ||
      Number(a.methods === undefined) - Number(b.methods === undefined),
  )
  for (const child of node.literals?.values() ?? []) sortRoutes(child)
  sortRoutes(node.capture)
}

const ANY_HOST = ['']

/** Reports pairs of routes that match the same requests of a host, since one of them would never be reached. */
export function findDuplicates(routes: readonly CompiledRoute[], report: ReportProblem): void {
  const groups = new Map<string, GroupMethods>()
  routes.forEach((route, i) => {
    let duplicate: number | undefined
    for (const host of route.route.match.hosts ?? ANY_HOST) {
      const key = `${host.toLowerCase()} ${route.group}`
      const taken = groups.get(key) ?? new GroupMethods()
      groups.set(key, taken)
      duplicate ??= taken.take(i, route.methods)
    }
    if (duplicate === undefined) return
    const path = route.route.match.path ?? '/'
    report(['routes', i], `routes "${routes[duplicate]!.name}" and "${route.name}" match the same requests (${path})`)
  })
}

/** The route of a group for each method. The route without a list gets the methods that no list names. */
class GroupMethods {
  readonly #byMethod = new Map<string, number>()
  #rest: number | undefined

  /** Adds a route. Returns the earliest route that already has one of its methods. */
  take(route: number, methods: ReadonlySet<string> | undefined): number | undefined {
    if (methods === undefined) {
      const earlier = this.#rest
      this.#rest ??= route
      return earlier
    }
    let duplicate: number | undefined
    for (const method of methods) {
      const earlier = this.#byMethod.get(method)
      if (earlier === undefined) this.#byMethod.set(method, route)
      else duplicate = Math.min(duplicate ?? earlier, earlier)
    }
    return duplicate
  }
}
