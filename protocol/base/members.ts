/** Which members an object of options has. A misspelt one would otherwise be ignored, and with it a guard that it should have set. */
import { maskSecrets } from './held-text.ts'
import { isRecord } from './is-record.ts'
import { nearest } from './nearest.ts'

/** The check of a member, by its type. `any`: where it is used, except that it is not `null`. */
type Kind<T> = [T] extends [boolean]
  ? 'boolean'
  : [T] extends [number]
    ? 'number'
    : [T] extends [string]
      ? 'string'
      : [T] extends [readonly string[]]
        ? 'strings'
        : [T] extends [readonly unknown[]]
          ? 'list'
          : [T] extends [(...args: never) => unknown]
            ? 'function'
            : [T] extends [object]
              ? [Extract<T, readonly unknown[]>] extends [never]
                ? 'object'
                : 'any'
              : [T] extends [Content | readonly Content[]]
                ? 'content'
                : 'any'

/** Text or bytes, or the file that holds them. */
type Content = string | Uint8Array | { readonly file: string }

/** All members of `O` but those of a schema `S` of limits, which is checked elsewhere. */
export type Members<O, S = object> = { readonly [K in Exclude<keyof O, keyof S>]-?: Kind<NonNullable<O[K]>> }

const KINDS: Readonly<Record<string, { is: (value: unknown) => boolean; name: string }>> = {
  boolean: { is: value => typeof value === 'boolean', name: 'true or false' },
  number: { is: value => typeof value === 'number', name: 'a number' },
  string: { is: value => typeof value === 'string', name: 'text' },
  strings: {
    is: value => Array.isArray(value) && value.every(one => typeof one === 'string'),
    name: 'a list of texts',
  },
  list: { is: Array.isArray, name: 'a list' },
  function: { is: value => typeof value === 'function', name: 'a function' },
  object: { is: isRecord, name: 'an object' },
  content: { is: value => [value].flat().every(isContent), name: 'text, bytes or a file' },
  any: { is: value => value !== null, name: 'given or left out' },
}

/**
 * Throws a TypeError that names the member that is unknown, `null`, of another type, or inherited: `null` would otherwise be as good as absent,
 * which may switch off a guard that its owner meant to set. `group`: path of the object, if it is a member itself, and may be absent.
 */
export function checkMembers(
  group: string,
  given: object | undefined,
  members: Readonly<Record<string, string>>,
  limits: object = {},
): void {
  if (given === undefined && group !== '') return
  if (!isRecord(given)) throw new TypeError(`${group || 'the options'} must be an object, not ${kindOf(given)}`)
  const prefix = group === '' ? '' : `${group}.`
  for (const name of Object.keys(members)) {
    // What a class gives is lost in a copy.
    if (name in given && !Object.prototype.propertyIsEnumerable.call(given, name)) {
      throw new TypeError(`${prefix}${name} must be a member of the object itself, and enumerable`)
    }
  }
  for (const [name, value] of Object.entries(given)) {
    if (Object.hasOwn(limits, name)) continue
    if (!Object.hasOwn(members, name)) throw unknownMember(prefix, name, { ...members, ...limits })
    checkPath(prefix + name, name === 'file' ? value : isRecord(value) && value.file)
    const kind = KINDS[members[name]!]
    if (kind !== undefined && value !== undefined && !kind.is(value)) {
      throw new TypeError(`${prefix}${name} must be ${kind.name}, not ${kindOf(value)}`)
    }
  }
}

/** As {@link checkMembers}, and for a member that is `undefined`, which its owner meant to narrow what is done. `what` would be done then. */
export function checkNarrowing(given: object, members: Readonly<Record<string, string>>, what: string): void {
  checkMembers('', given, members)
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) throw new TypeError(`${name} must be given or left out: undefined would ${what}`)
  }
}

/** Errors and log lines quote paths. */
function checkPath(name: string, path: unknown): void {
  if (typeof path !== 'string' || maskSecrets(path) === path) return
  throw new TypeError(`${name} must name a file by its path, not by its contents`)
}

function isContent(value: unknown): boolean {
  return typeof value === 'string' || value instanceof Uint8Array || (isRecord(value) && typeof value.file === 'string')
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'a list' : typeof value
}

export function unknownMember(prefix: string, name: string, known: object): TypeError {
  const meant = nearest(name, Object.keys(known))
  return new TypeError(`${prefix}${name} is unknown${meant === undefined ? '' : `: did you mean ${meant}?`}`)
}
