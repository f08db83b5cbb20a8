/** The members of an operator's request, which may be absent. */
import type { Body } from '../../admin/actions.ts'

type Given<T> = { [K in keyof T]?: Exclude<T[K], undefined> }

/** Those that are there: to the library, one that is `undefined` is a mistake. */
export function givenOf<T extends object>(members: T): Given<T> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as Given<T>
}

export function textOf(body: Body, name: string, most = 256): string | undefined {
  const value = body[name]
  if (value === undefined || (typeof value === 'string' && value !== '' && value.length <= most)) return value
  throw new TypeError(`${name} must be a string of 1 to ${most} characters`)
}

export function numberOf(body: Body, name: string): number | undefined {
  const value = body[name]
  if (value === undefined || (typeof value === 'number' && Number.isFinite(value) && value >= 0)) return value
  throw new TypeError(`${name} must be a number from 0`)
}

/** A whole number. In a query it is text. */
export function wholeOf(body: Body, name: string, least: number, most: number): number | undefined {
  const value = body[name]
  if (value === undefined) return undefined
  const found = /^-?\d{1,16}$/.test(String(value)) ? Number(value) : Number.NaN
  if (found >= least && found <= most) return found
  throw new TypeError(`${name} must be a whole number from ${least} to ${most}`)
}
