import type { Node, Pair, YAMLMap } from 'yaml'
import { yamlProblem } from '../../protocol/base/yaml-problem.ts'
import { configurationError } from '../failure.ts'
import { readInput } from '../options.ts'
import { suggestion } from '../suggest.ts'
import type { Settings } from './setting.ts'

/** Values of a configuration file by setting, with their place for error messages. */
type FileValues = ReadonlyMap<string, { readonly value: unknown; readonly where: string }>

/**
 * Reads a YAML configuration file. Mappings nest along the dots of the names (`public: { tls: { cert: ... } }`), and a
 * key may contain dots itself (`public.tls.cert: ...`). A name that is a setting and a prefix of others, such as `preset`,
 * takes its own value under `name`.
 */
export async function readConfigFile(path: string, settings: Settings): Promise<FileValues> {
  const yaml = await import('yaml')
  const lines = new yaml.LineCounter()
  const document = yaml.parseDocument(readInput(path, 'the configuration file'), {
    lineCounter: lines,
    prettyErrors: false,
  })
  const place = (offset: number | undefined) => {
    const { line, col } = lines.linePos(offset ?? 0)
    return `${path}:${line}:${col}`
  }
  // Keep the text as written: as numbers, 007, 12e5 and ids of 20 digits would be different names.
  yaml.visit(document, {
    Scalar: (_, node) => {
      if (typeof node.value === 'number') node.value = node.source
    },
  })
  const problem = document.errors[0]
  if (problem) throw configurationError(`${place(problem.pos[0])}: ${yamlProblem(problem)}`)
  const found = new Map<string, { value: unknown; where: string }>()
  const root = document.contents
  if (root === null) return found
  if (!yaml.isMap(root)) throw configurationError(`${place(root.range?.[0])}: expected settings, such as "domain: ..."`)
  walk(root as YAMLMap<Node, Node | null>, '')
  return found

  function walk(map: YAMLMap<Node, Node | null>, prefix: string): void {
    for (const pair of map.items) visit(pair, prefix)
  }

  function visit({ key, value }: Pair<Node, Node | null>, prefix: string): void {
    const own = String((key as { value?: unknown }).value)
    const where = place(key.range?.[0])
    const name = prefix !== '' && own === 'name' && isSetting(prefix) ? prefix : join(prefix, own)
    if (yaml.isMap(value)) {
      if (!isPrefix(name)) throw configurationError(`${where}: ${isSetting(name) ? noMapping(name) : unknownKey(name)}`)
      // It would set nothing, although it says otherwise: `allow: {}` would allow all.
      if (value.items.length === 0) throw configurationError(`${where}: ${needsMapping(name)}`)
      walk(value as YAMLMap<Node, Node | null>, name)
      return
    }
    if (!isSetting(name))
      throw configurationError(`${where}: ${isPrefix(name) ? needsMapping(name) : unknownKey(name)}`)
    if (found.has(name)) throw configurationError(`${where}: ${name} is given twice`)
    if (value === null) throw configurationError(`${where}: ${name} has no value: write ${name}: ...`)
    found.set(name, { value: plain(value, where), where })
  }

  /** An alias may resolve to nothing, or to itself. */
  function plain(value: Node, where: string): unknown {
    try {
      const meant: unknown = value.toJS(document)
      JSON.stringify(meant)
      return meant
    } catch (error) {
      throw configurationError(`${where}: ${yamlProblem(error as Error)}`, error)
    }
  }

  function isSetting(name: string): boolean {
    return Object.hasOwn(settings, name)
  }

  function isPrefix(name: string): boolean {
    return Object.keys(settings).some(candidate => candidate.startsWith(`${name}.`))
  }

  function unknownKey(name: string): string {
    return `unknown key ${name}${suggestion(name, namesAndPrefixes(settings))}`
  }
}

/** `public.tls.cert`, and `public`, `public.tls` that lead to it. */
function namesAndPrefixes(settings: Settings): Set<string> {
  const all = new Set<string>()
  for (const name of Object.keys(settings)) {
    const parts = name.split('.')
    for (let length = parts.length; length > 0; length--) all.add(parts.slice(0, length).join('.'))
  }
  return all
}

function join(prefix: string, name: string): string {
  return prefix === '' ? name : `${prefix}.${name}`
}

function noMapping(name: string): string {
  return `${name} takes a value, not a mapping`
}

function needsMapping(name: string): string {
  return `${name} contains further settings, such as ${name}: { ... }`
}
