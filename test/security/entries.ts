/**
 * Finds calls in a module's source that enter our code from Node with nobody to catch (P1): listeners, timers,
 * callbacks, promises that nobody awaits. `protocol/base/guard.ts` says how to write each.
 */
import { parseAst } from 'vitest/node'

interface Node {
  readonly type: string
  readonly start: number
  readonly [key: string]: unknown
}

const LISTENS: ReadonlySet<string> = new Set(['on', 'once', 'addListener', 'prependListener', 'prependOnceListener'])
const TIMES: ReadonlySet<string> = new Set(['setTimeout', 'setInterval', 'setImmediate', 'queueMicrotask', 'nextTick'])
/** Node's methods and functions whose callback is checked only if it is written inline; ours have other names. */
const CALLS_BACK: ReadonlySet<string> = new Set([
  'write',
  'end',
  'listen',
  'close',
  'watch',
  'lookup',
  'pipeline',
  'finished',
  'send',
  'subscribe',
])
/** Those of them that are also checked when given a function's name. */
const TAKES_NAMES = /^(?:write|end|send|create\w*Server)$/
/** Stream methods that we replace with our own. */
const REPLACED = /^(?:read|emit|write|end|push|destroy)$/
const CHAINS: ReadonlySet<string> = new Set(['then', 'catch', 'finally'])
/** What they return, or receive, throws nothing. */
const GUARDS = /^(?:guard|guarded|stepOf|hook|logGuard|starting|followed)$/
/**
 * A promise's, or without effect, or a parameter whose name promises that the caller guards it, which is checked here.
 */
const HARMLESS = /^(?:resolve|reject|ignore|setImmediate|guarded)$/
/** Events of our own handles, which `protocol/base/events.ts` guards. */
const OUR_EVENTS = /^'(?:connected|disconnected|draining|standing|reconnecting|refused|session|ready|sessionEnded)'$/

/** Each entry that bypasses the guard: its line and what it calls. */
export function unguardedEntries(source: string): string[] {
  const program = parseAst(source, { lang: 'ts' }) as unknown as Node
  const known = definitions(program)
  const found: string[] = []
  const isSafe = (callback: unknown): boolean => isNode(callback) && safe(callback, known)
  const note = (node: Node, what: string) => {
    found.push(`${source.slice(0, node.start).split('\n').length}: ${what}`)
  }
  const timersAsPromises = /import \{[^}]*\bsetTimeout\b[^}]*\} from 'node:timers\/promises'/.test(source)
  visit(program, node => {
    if (node.type === 'CallExpression') {
      const name = nameOf(node.callee)
      const args = node.arguments as Node[]
      const event = args[0] === undefined ? '' : source.slice(args[0].start, end(args[0]))
      const ours = OUR_EVENTS.test(event) || nameOf((node.callee as Node).object) === '#events'
      const listens = LISTENS.has(name) && isMember(node.callee) && args.length === 2 && !ours
      if (listens && !isSafe(args[1])) note(node, `${name} ${event}`)
      else if (name === 'addEventListener' && !isSafe(args[1])) note(node, name)
      else if (TIMES.has(name) && !(timersAsPromises && name === 'setTimeout') && !isSafe(args[0])) note(node, name)
      else if (
        (CALLS_BACK.has(name) || /^create\w*Server$/.test(name)) &&
        isFunction(TAKES_NAMES.test(name) ? resolved(args.at(-1), known) : args.at(-1)) &&
        !isSafe(args.at(-1))
      )
        note(node, name)
    }
    const slot = slotOf(node)
    if (slot !== undefined && !isSafe(node.right)) note(node, `the slot ${source.slice(slot.start, end(slot))}`)
    const floating = floatingCall(node)
    if (floating !== undefined && !isWaitedFor(floating, isSafe))
      note(node, `a promise: ${source.slice(floating.start, end(floating)).split('\n')[0]}`)
  })
  return found
}

/** A member of a Node object that is set to a function of ours: Node calls it like a listener. */
function slotOf(node: Node): Node | undefined {
  if (node.type !== 'AssignmentExpression' || !isFunction(node.right) || !isMember(node.left)) return undefined
  const left = node.left as Node
  return left.computed === true || REPLACED.test(nameOf(left.property)) ? left : undefined
}

/** What a name refers to in this module; otherwise the node itself. */
function resolved(node: Node | undefined, known: ReadonlyMap<string, Node>): Node | undefined {
  if (node?.type === 'Identifier') return known.get(nameOf(node)) ?? node
  if (node?.type === 'MemberExpression' && (node.object as Node).type === 'ThisExpression')
    return known.get(`.${nameOf(node)}`) ?? node
  return node
}

/** A call whose promise is dropped: `void f()`, or a chain as a statement. */
function floatingCall(node: Node): Node | undefined {
  if (node.type === 'UnaryExpression' && node.operator === 'void' && isCall(node.argument)) return node.argument
  if (node.type !== 'ExpressionStatement' || !isCall(node.expression)) return undefined
  return CHAINS.has(nameOf(node.expression.callee)) ? node.expression : undefined
}

/** Whether the chain ends with a guarded `catch`, or with a `then` that is guarded for both outcomes. */
function isWaitedFor(call: Node, isSafe: (callback: unknown) => boolean): boolean {
  const name = nameOf(call.callee)
  const args = call.arguments as Node[]
  if (name === 'catch') return isSafe(args[0])
  return name === 'then' && args.length === 2 && args.every(isSafe)
}

function safe(node: Node, known: ReadonlyMap<string, Node>): boolean {
  switch (node.type) {
    case 'CallExpression': {
      const name = nameOf(node.callee).replace('#', '')
      return GUARDS.test(name) || (name === 'heardFirst' && safe((node.arguments as Node[])[0]!, known))
    }
    case 'ArrowFunctionExpression':
    case 'FunctionExpression':
    case 'FunctionDeclaration':
      return catchesAll(node.body as Node) || throwsNothing(node.body as Node, known)
    case 'Identifier':
    case 'MemberExpression': {
      const name = nameOf(node)
      const definition = known.get(node.type === 'Identifier' ? name : `.${name}`)
      return HARMLESS.test(name) || (definition !== undefined && safe(definition, known))
    }
    default:
      return false
  }
}

/** No statement, or a single `try` with a `catch`. */
function catchesAll(body: Node): boolean {
  const statements = body.body as Node[] | undefined
  if (body.type !== 'BlockStatement' || statements === undefined) return false
  return (
    statements.length === 0 ||
    (statements.length === 1 && statements[0]!.type === 'TryStatement' && statements[0]!.handler !== null)
  )
}

const MAY_THROW = /^(?:New|Await|Yield|Throw|Tagged|Binary|Update|Import|Class)/

/** Only local names, our own private members and calls that are safe: nothing in it throws. */
function throwsNothing(body: Node, known: ReadonlyMap<string, Node>): boolean {
  let nothing = true
  visit(body, node => {
    if (node.type === 'CallExpression') {
      const callee = node.callee as Node
      const own = new Map([...known].filter(([, definition]) => definition.body !== body))
      nothing &&= callee.type === 'Identifier' && safe(callee, own)
    } else if (node.type === 'MemberExpression') {
      const [object, property] = [node.object as Node, node.property as Node]
      nothing &&= property.type === 'PrivateIdentifier' && /^(?:This|Identifier)/.test(object.type)
    } else if (MAY_THROW.test(node.type)) nothing = false
  })
  return nothing
}

/** Functions, constants, fields and methods by name; a name that occurs twice counts as unknown. */
function definitions(program: Node): Map<string, Node> {
  const known = new Map<string, Node>()
  const twice = new Set<string>()
  const define = (name: string, node: unknown) => {
    if (known.has(name)) twice.add(name)
    else if (isNode(node)) known.set(name, node)
  }
  visit(program, node => {
    if (node.type === 'FunctionDeclaration') define(nameOf(node.id), node)
    else if (node.type === 'VariableDeclarator') define(nameOf(node.id), node.init)
    else if (node.type === 'PropertyDefinition' || node.type === 'MethodDefinition')
      define(`.${nameOf(node.key)}`, node.value)
  })
  for (const name of twice) known.delete(name)
  return known
}

function visit(node: Node, see: (node: Node) => void): void {
  see(node)
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child, see)
  }
}

/** The last name of `a`, `a.b`, `this.#b`, `a?.b`. */
function nameOf(node: unknown): string {
  if (!isNode(node)) return ''
  if (node.type === 'Identifier') return String(node.name)
  if (node.type === 'PrivateIdentifier') return `#${String(node.name)}`
  if (node.type === 'MemberExpression') return nameOf(node.property)
  if (node.type === 'ChainExpression' || node.type === 'TSNonNullExpression') return nameOf(node.expression)
  return ''
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && 'start' in value
const isMember = (value: unknown) => isNode(value) && value.type === 'MemberExpression'
const isCall = (value: unknown): value is Node => isNode(value) && value.type === 'CallExpression'
const isFunction = (value: unknown): value is Node =>
  isNode(value) && /^(?:ArrowFunctionExpression|FunctionExpression|FunctionDeclaration)$/.test(value.type)
const end = (node: Node) => node.end as number
