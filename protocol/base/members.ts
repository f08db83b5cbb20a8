/** Which members an object of options has. A misspelt one would otherwise be ignored, and with it a guard that it should have set. */
import { isRecord } from './is-record.ts'
import { nearest } from './nearest.ts'

/** The check of a member, by its type. `any`: where it is used. */
type Kind<T> = [T] extends [boolean]
  ? 'boolean'
  : [T] extends [number]
    ? 'number'
    : [T] extends [string]
      ? 'string'
      : [T] extends [readonly string[]]
        ? 'strings'
        : 'any'

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
}

/** Throws a TypeError that names the member that is unknown or has another type. `group`: path of the object, if it is a member itself. */
export function checkMembers(
  group: string,
  given: object | undefined,
  members: Readonly<Record<string, string>>,
  limits: object = {},
): void {
  if (given === undefined) return
  if (!isRecord(given)) throw new TypeError(`${group || 'the options'} must be an object`)
  const prefix = group === '' ? '' : `${group}.`
  for (const [name, value] of Object.entries(given)) {
    if (Object.hasOwn(limits, name)) continue
    if (!Object.hasOwn(members, name)) throw unknownMember(prefix, name, { ...members, ...limits })
    const kind = KINDS[members[name]!]
    if (kind !== undefined && value !== undefined && !kind.is(value)) {
      const given = Array.isArray(value) ? 'a list' : value === null ? 'null' : typeof value
      throw new TypeError(`${prefix}${name} must be ${kind.name}, not ${given}`)
    }
  }
}

export function unknownMember(prefix: string, name: string, known: object): TypeError {
  const meant = nearest(name, Object.keys(known))
  return new TypeError(`${prefix}${name} is unknown${meant === undefined ? '' : `: did you mean ${meant}?`}`)
}
