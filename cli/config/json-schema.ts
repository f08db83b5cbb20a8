import type { Settings } from './setting.ts'

type Schema = Record<string, unknown>

/** JSON Schema (2020-12) of a component's configuration file, for editors. */
export function jsonSchema(component: string, settings: Settings): Schema {
  const root = mapping(settings, '')
  const dotted = Object.entries(settings).map(([name, setting]) => [name, value(setting)] as const)
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: `sallyport ${component}`,
    ...root,
    // A key may contain the dots itself.
    properties: { ...Object.fromEntries(dotted), ...(root.properties as Schema) },
  }
}

function mapping(settings: Settings, prefix: string): Schema {
  const inside = Object.keys(settings).filter(name => name.startsWith(prefix))
  const keys = new Set(inside.map(name => name.slice(prefix.length).split('.')[0]!))
  const properties = Object.fromEntries([...keys].map(key => [key, property(settings, prefix + key)]))
  return { type: 'object', additionalProperties: false, properties }
}

/** A value, a mapping of further settings, or either (such as `preset`). */
function property(settings: Settings, name: string): Schema {
  const own = settings[name]
  const hasInside = Object.keys(settings).some(candidate => candidate.startsWith(`${name}.`))
  if (!hasInside) return value(own!)
  const inside: Schema = { ...mapping(settings, `${name}.`), minProperties: 1 }
  if (!own) return inside
  const properties = { name: value(own), ...(inside.properties as Schema) }
  return { anyOf: [value(own), { ...inside, properties }] }
}

function value({ kind, about, default: fallback }: Settings[string]): Schema {
  return { description: about, ...kind.schema, ...(fallback === undefined ? {} : { default: plain(fallback) }) }
}

function plain(text: string): unknown {
  if (text === 'true' || text === 'false') return text === 'true'
  return /^\d+$/.test(text) ? Number(text) : text
}
