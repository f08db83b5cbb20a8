import { aboutOf, type Limit, type Limits } from '../../protocol/base/limit.ts'
import * as kinds from './kinds.ts'

/**
 * One setting of a component. Its key in the component's table is its name everywhere: the flag `--auth.jwks.url`, the
 * variable `SALLYPORT_AUTH_JWKS_URL`, the YAML path `auth.jwks.url`.
 */
export interface Setting<T = unknown> {
  readonly kind: kinds.Kind<T>
  /** As written on the command line. Without it, the setting is undefined unless given. */
  readonly default?: string
  /** One or two sentences, for `--help` and for docs/configuration.md. */
  readonly about: string
  /** Whether `config print` hides the value. */
  readonly secret?: boolean
}

/** Matches the settings whose file holds a secret. */
export const SECRET_FILE = /(?:^|\.)(?:token|password|key|mac)\.file$|\.key$/

export type Settings = Readonly<Record<string, Setting>>

type WithDefault<T> = Setting<T> & { readonly default: string }

/** A setting that may be absent. */
export function optional<T>(kind: kinds.Kind<T>, about: string, more: { secret?: boolean } = {}): Setting<T> {
  return { kind, about, ...more }
}

/** A setting that always has a value. */
export function setting<T>(kind: kinds.Kind<T>, fallback: string, about: string): WithDefault<T> {
  return { kind, default: fallback, about }
}

type FlagOf<L extends Limit> = L extends { readonly flag: infer F extends string } ? F : never

type LimitSettings<S extends Limits> = { readonly [K in keyof S as FlagOf<S[K]>]: WithDefault<number> }

/** The settings for all limits that have a flag. */
export function limitSettings<S extends Limits>(schema: S): LimitSettings<S> {
  const entries = Object.values(schema).flatMap(limit =>
    limit.flag === undefined ? [] : [[limit.flag, setting(kinds.limit(limit), limit.default, aboutOf(limit))]],
  )
  return Object.fromEntries(entries)
}

/** The library's options that those settings are. */
export function limitOptions<S extends Limits>(
  schema: S,
  config: { readonly [name in FlagOf<S[keyof S]>]: number },
): { readonly [K in keyof S as FlagOf<S[K]> extends never ? never : K]: number } {
  const entries = Object.entries(schema).filter(([, { flag }]) => flag !== undefined)
  return Object.fromEntries(entries.map(([name, { flag }]) => [name, config[flag as keyof typeof config]])) as never
}

/** The values of a component's settings: those without a default may be `undefined`. */
export type Values<S extends Settings> = {
  readonly [K in keyof S]: S[K] extends WithDefault<infer T> ? T : S[K] extends Setting<infer T> ? T | undefined : never
}

/** `auth.jwks.url` becomes `SALLYPORT_AUTH_JWKS_URL`. */
export function environmentName(name: string): string {
  return `SALLYPORT_${name.toUpperCase().replaceAll(/[.-]/g, '_')}`
}
