/** The compiled table, which the hot path reads. Everything that does not depend on a request is computed once per table. */
import type { Cidrs } from '../protocol/base/address.ts'
import type { CorsPolicy } from '../protocol/http/problem.ts'
import type { Signer } from '../protocol/webhook/sign.ts'
import type { Verifier } from '../protocol/webhook/verify.ts'
import type { InboxRule } from '../protocol/wire/control.ts'
import type { Route } from './table.ts'
import type { TargetTemplate, TlsIdentity, UpstreamTarget } from './target.ts'

export interface CompiledRoute {
  readonly name: string
  /** The route as written, for explanations. */
  readonly route: Route
  /** The match path's segments, decoded; captures as undefined. */
  readonly segments: readonly (string | undefined)[]
  /** Name and segment index of each capture: `[name, index, name, index]`. */
  readonly captures: readonly (string | number)[]
  /** Whether the match path ends in a slash, so that the bare name does not match. */
  readonly slash: boolean
  readonly methods: ReadonlySet<string> | undefined
  /** Flat name and value; value `*` means presence. */
  readonly headers: readonly string[]
  /** Routes of one host with the same group differ by method only. */
  readonly group: string
  /** The target, if its host has no captures. */
  readonly target: UpstreamTarget | undefined
  readonly template: TargetTemplate | undefined
  readonly answer: CompiledAnswer | undefined
  /** How many segments are cut off the path, and what replaces them. */
  readonly cutSegments: number
  readonly prefix: string
  readonly keepHost: boolean
  readonly requestRules: CompiledHeaders | undefined
  readonly responseRules: CompiledHeaders | undefined
  readonly connectMs: number
  readonly headMs: number
  /** -1 if there is no limit. */
  readonly bodyBytes: number
  readonly tls: TlsIdentity | undefined
  /** Whether the target's `sallyport-error` is trusted. */
  readonly trustErrors: boolean
  readonly attempts: number
  readonly idempotencyKey: boolean
  readonly cors: CorsPolicy | undefined
  readonly verifier: Verifier | undefined
  readonly signer: Signer | undefined
  /** Undefined if all may call. */
  readonly callers: Cidrs | undefined
  /** Allowed values by capture. */
  readonly allowed: ReadonlyMap<string, ReadonlySet<string>>
}

export interface CompiledAnswer {
  readonly status: number
  readonly headers: readonly string[]
  readonly body: Uint8Array
}

/** `remove` also has the names of `set`. */
export interface CompiledHeaders {
  /** As `dashed` names, so that no other spelling gets around the rules. */
  readonly remove: ReadonlySet<string>
  readonly set: readonly string[]
}

/** One segment of the trie of paths. */
export interface PathNode {
  literals: Map<string, PathNode> | undefined
  capture: PathNode | undefined
  /** Routes whose path ends here: those with more header conditions first, then in the table's order. */
  routes: CompiledRoute[]
}

export interface CompiledTable {
  readonly routes: readonly CompiledRoute[]
  /** Whether one of them demands something, so that a final slash must not get around it. */
  readonly isGuarded: boolean
  /** Routes that take no second path in a field (`second-path.ts`). */
  readonly guardedInPart: ReadonlySet<CompiledRoute>
  /** Tries by exact host, by `*.` suffix (`.example.com`), and for any host. */
  readonly hosts: ReadonlyMap<string, PathNode>
  readonly wildcards: ReadonlyMap<string, PathNode>
  readonly anyHost: PathNode | undefined
  readonly resolve: ReadonlyMap<string, string>
  /** The inbox rules that a client tells its server. */
  readonly inbox: readonly InboxRule[]
  /** Settings that are allowed but unwise, logged at start and reload. */
  readonly warnings: readonly string[]
}
