/** The columns of a message in both stores. They have the names of `Message`. */
import type { Message } from './store.ts'

export const COLUMNS = [
  ...[
    'id',
    'runtime',
    'lane',
    'route',
    'why',
    'state',
    'received',
    'expires',
    'bytes',
    'parts',
    'attempts',
    'failures',
  ],
  ...['refusals', 'failedSince', 'next', 'changed', 'key', 'enc', 'caller', 'reason'],
] as const satisfies readonly (keyof Message)[]

/** What an update may set. */
export const SETTABLE = [
  'attempts',
  'failures',
  'refusals',
  'failedSince',
  'next',
  'expires',
  'reason',
  'state',
] as const
