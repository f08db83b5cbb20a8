/** The tries of paths that a table's routes make, one for each host; and the routes that say the same. */
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
  node.routes.sort(
    (a, b) =>
      b.headers.length - a.headers.length ||
      Number(b.slash) - Number(a.slash) ||
      Number(a.methods === undefined) - Number(b.methods === undefined),
  )
}

const ANY_HOST = ['']

/** Two routes that take the same requests of a host: one of them would never be reached. */
export function findTwins(routes: readonly CompiledRoute[], report: ReportProblem): void {
  const groups = new Map<string, number[]>()
  routes.forEach((route, i) => {
    let twin: number | undefined
    for (const host of route.route.match.hosts ?? ANY_HOST) {
      const key = `${host.toLowerCase()} ${route.group}`
      const earlier = groups.get(key) ?? []
      twin ??= earlier.find(j => methodsOverlap(routes[j]!, route))
      groups.set(key, [...earlier, i])
    }
    if (twin === undefined) return
    const path = route.route.match.path ?? '/'
    report(['routes', i], `routes "${routes[twin]!.name}" and "${route.name}" match the same requests (${path})`)
  })
}

function methodsOverlap(a: CompiledRoute, b: CompiledRoute): boolean {
  if (a.methods === undefined && b.methods === undefined) return true
  if (a.methods === undefined || b.methods === undefined) return false
  for (const method of a.methods) if (b.methods.has(method)) return true
  return false
}
