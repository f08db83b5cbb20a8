/** The members of an operator's request, which may be absent. */
import type { Body } from '../../admin/actions.ts'

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
