import type { Setting } from './setting.ts'

/** A setting's value for everybody to see: no secret, no credentials in a URL, and no query, where keys of an API may stand. */
export function maskedValue(setting: Setting, raw: unknown): string {
  const text = Array.isArray(raw) ? raw.join(',') : String(raw)
  if (setting.secret && !/^https?:\/\/\S+$/.test(text)) return '***'
  return text.replaceAll(/(:\/\/)\S*@/g, '$1***@').replaceAll(/(:\/\/[^\s?#]*[?#])[^\s,]+/g, '$1***')
}
